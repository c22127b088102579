package main

import (
	"testing"
	"time"
)

func TestADaemonWithAnOpenQuestionIsNotIdle(t *testing.T) {
	s := newSite(t)
	pid := s.start("--idle-exit", "1s")
	id := s.submit("jobd ask 'Go on?' --field yes:boolean --timeout 1h --on-timeout continue")
	s.awaitJob(id, "waiting")
	time.Sleep(2500 * time.Millisecond)
	if dead(pid) {
		t.Error("it left with a question open")
	}
	s.must("answer", id, "yes=true")
	s.awaitJob(id, "succeeded")
	eventually(t, "the daemon is gone", func() bool { return dead(pid) })
}
