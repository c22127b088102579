package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"jobd/internal/caller"
	"jobd/internal/ipc"
)

func TestTheSessionsOfAClientAreRemembered(t *testing.T) {
	f := sessionFiles{filepath.Join(t.TempDir(), "sessions")}
	one, two := caller.ClientID("one"), caller.ClientID("two")
	now := time.Now()
	sessions := func(client string, want ...string) {
		t.Helper()
		got, err := f.of(client)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s: (-want +got)\n%s", client, d)
		}
	}
	add := func(client string, names ...string) {
		t.Helper()
		for _, name := range names {
			if err := f.add(client, name, now); err != nil {
				t.Fatal(err)
			}
		}
	}
	sessions(one)
	add(one, "a")
	add(two, "x")
	add(one, "b", "b", "c", "a")
	sessions(one, "b", "c", "a")
	sessions(two, "x")

	// What can be no name changes nothing, and no file is read or written for it.
	add("", "a")
	add("../../etc/passwd", "a")
	add(strings.ToUpper(one), "a")
	add(two, "", "a\nb", "\xff", strings.Repeat("s", 201))
	sessions(two, "x")
	sessions("../sessions/" + two)

	for i := range 200 {
		add(two, fmt.Sprint(i))
	}
	if got, err := f.of(two); err != nil || len(got) != sessionsKept || got[len(got)-1] != "199" {
		t.Errorf("%d are kept, %v", len(got), err)
	}
	entries, err := os.ReadDir(f.dir)
	if err != nil || len(entries) != 2 {
		t.Errorf("%d files are left, %v", len(entries), err)
	}
	for _, e := range entries {
		if info, err := e.Info(); err != nil || info.Mode() != 0o600 {
			t.Errorf("%s has the mode %v, %v", e.Name(), info.Mode(), err)
		}
	}

	// A client that was not heard of for long is forgotten when another is.
	now = now.Add(sessionsFor + time.Hour)
	add(one, "d")
	sessions(two)
}

// A front end knows the session that its client started in, the hook those
// that came after: jobs belong to the present one, and the results of the
// others are delivered all the same.
func TestAJobBelongsToTheSessionThatTheHookReported(t *testing.T) {
	s := newToolSite(t)
	client := caller.ClientID("token")
	run := func(command string) ipc.SubmitReply {
		t.Helper()
		r := s.request("run_job", struct{}{})
		r.Arguments, r.Command, r.Client = nil, command, client
		reply, err := s.submit(r)
		if err != nil {
			t.Fatal(err)
		}
		return reply
	}
	moveTo := func(session string) {
		t.Helper()
		if _, err := s.daemon.Session(t.Context(), ipc.SessionRequest{Client: client, Current: session, Project: s.project}); err != nil {
			t.Fatal(err)
		}
	}
	delivered := func(id, named, client string) bool {
		t.Helper()
		if err := s.daemon.Delivered(t.Context(), ipc.DeliveredRequest{ID: id, Session: named, Client: client}); err != nil {
			t.Fatal(err)
		}
		job, err := s.daemon.Get(t.Context(), ipc.GetRequest{ID: id})
		if err != nil {
			t.Fatal(err)
		}
		return job.DeliveredAt != nil
	}

	var ids, sessions []string
	for _, session := range []string{"", "two", "three"} {
		if session != "" {
			moveTo(session)
		}
		reply := run("echo done")
		if reply.Joined != "" {
			t.Errorf("in session %q it joined by %q", session, reply.Joined)
		}
		if again := run("echo done"); again.Joined != "session" || again.Job.ID != reply.Job.ID {
			t.Errorf("the same call in session %q joined by %q", session, again.Joined)
		}
		ids, sessions = append(ids, reply.Job.ID), append(sessions, reply.Job.Session)
		s.await(reply.Job.ID, "final")
	}
	if want := []string{"one", "two", "three"}; !slices.Equal(sessions, want) {
		t.Errorf("the jobs belong to %q, want %q", sessions, want)
	}
	stranger := caller.ClientID("another token")
	for i, id := range ids {
		if delivered(id, "elsewhere", stranger) || delivered(id, "", "") {
			t.Errorf("job %d was delivered to another session", i)
		}
		if !delivered(id, "one", client) {
			t.Errorf("job %d was not delivered to the process that follows it", i)
		}
	}
	// A process that starts in the last of them, as a resumed one does, owns it.
	last := run("echo once more")
	s.await(last.Job.ID, "final")
	if !delivered(last.Job.ID, "three", stranger) {
		t.Error("the resumed session was not delivered its job")
	}
}
