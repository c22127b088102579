package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"jobd/internal/config"
)

// sessionFiles remember which conversations a client's process has been in
// since it started: its front end only knows the first, for the environment of
// a process never changes, while the session-start hook is told of each. They
// are files, since the hook has to write where no daemon runs and none is worth
// a start: one for each client, one session a line, the present one last.
//
// A client runs its hooks one after the other, so that a file has one writer.
type sessionFiles struct{ dir string }

func sessionsOf(p config.Places) sessionFiles {
	return sessionFiles{filepath.Join(p.StateDir, "sessions")}
}

const (
	// sessionsKept is how many sessions of a client are remembered.
	sessionsKept = 64
	// sessionsFor is how long a client that starts no further session is
	// remembered. A process that lives longer goes by its first one again.
	sessionsFor = 90 * 24 * time.Hour
	// maxSession bounds the name of a session, in bytes.
	maxSession = 200
)

// of returns the sessions that were recorded of a client, the present one last.
func (f sessionFiles) of(client string) ([]string, error) {
	if !isClient(client) {
		return nil, nil
	}
	data, err := os.ReadFile(filepath.Join(f.dir, client))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the client's sessions: %w", err)
	}
	return slices.DeleteFunc(strings.Split(string(data), "\n"), func(s string) bool { return !isSession(s) }), nil
}

// add records the session that a client is in now. A client or session whose
// name cannot be one changes nothing.
func (f sessionFiles) add(client, session string, now time.Time) error {
	if !isClient(client) || !isSession(session) {
		return nil
	}
	known, err := f.of(client)
	if err != nil {
		return err
	}
	if len(known) > 0 && known[len(known)-1] == session {
		return nil
	}
	known = append(slices.DeleteFunc(known, func(s string) bool { return s == session }), session)
	known = known[max(0, len(known)-sessionsKept):]
	if err := config.EnsureDir(f.dir); err != nil {
		return err
	}
	f.forget(now)
	next, err := os.CreateTemp(f.dir, ".new-*")
	if err != nil {
		return fmt.Errorf("recording the client's session: %w", err)
	}
	_, err = next.WriteString(strings.Join(known, "\n") + "\n")
	if err = errors.Join(err, next.Chmod(0o600), next.Close()); err == nil {
		err = os.Rename(next.Name(), filepath.Join(f.dir, client))
	}
	if err != nil {
		return fmt.Errorf("recording the client's session: %w", errors.Join(err, os.Remove(next.Name())))
	}
	return nil
}

// forget removes the files of clients that were not heard of for long. What it
// cannot remove is left to the next time.
func (f sessionFiles) forget(now time.Time) {
	entries, err := os.ReadDir(f.dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil && now.Sub(info.ModTime()) > sessionsFor {
			_ = os.Remove(filepath.Join(f.dir, e.Name()))
		}
	}
}

// isClient reports whether s can be what [caller.ClientID] returns. It becomes
// the name of a file.
func isClient(s string) bool {
	return len(s) == 32 && strings.Trim(s, "0123456789abcdef") == ""
}

// isSession reports whether s can be a session's name.
func isSession(s string) bool {
	return s != "" && len(s) <= maxSession && utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}
