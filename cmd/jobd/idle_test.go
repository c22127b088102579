package main

import (
	"testing"
	"time"
)

func TestADaemonWithAnOpenQuestionIsNotIdle(t *testing.T) {
	t.Parallel() // it takes the time that a daemon may be idle
	s := newSite(t)
	pid := s.start("--idle-exit", "5s")
	id := s.submit("jobd ask 'Go on?' --field yes:boolean --timeout 1h --on-timeout continue")
	s.awaitJob(id, "waiting")
	time.Sleep(6500 * time.Millisecond)
	if dead(pid) {
		t.Error("it left with a question open")
	}
	s.must("answer", id, "yes=true")
	s.awaitJob(id, "succeeded")
}
