package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"jobd/internal/caller"
	"jobd/internal/config"
	"jobd/internal/ipc"
	"jobd/internal/jobs"
	"jobd/internal/sqlite"
)

// The bounds of a hook: a session waits for it.
const (
	hookTime  = 1500 * time.Millisecond // with its own start and end less than 2 s
	hookInput = 1 << 20
	hookLines = 3
)

// newHookCommand returns "jobd hook", the commands that Claude Code runs at
// points of a session.
func newHookCommand(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "hook",
		Short:   "Commands for Claude Code's hooks",
		Hidden:  true,
		Example: `  echo '{"session_id": "1", "cwd": "/src", "source": "startup"}' | jobd hook session-start`,
	}
	cmd.AddCommand(&cobra.Command{
		Use:   "session-start",
		Short: "Tell a session of this project's jobs",
		Long: `Claude Code runs this when a session starts, is resumed or is cleared. It tells
the model and the person, in two or three lines, which jobs of the project run,
wait for an answer, or ended with nobody told. It says nothing if there is
nothing to say, starts no daemon for that, and never fails.`,
		Example: `  echo '{"session_id": "1", "cwd": "/src", "source": "startup"}' | jobd hook session-start`,
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), hookTime)
			defer cancel()
			type outcome struct {
				text string
				err  error
			}
			done := make(chan outcome, 1)
			// It is left behind, and ends with the process, where something does
			// not end with ctx: a read of the input, or of a disk that is gone.
			go func() {
				text, err := sessionStart(ctx, c)
				done <- outcome{text, err}
			}()
			select {
			case o := <-done:
				// An error would disturb the session, and it is nobody's fault there.
				if o.err == nil && o.text != "" {
					_ = json.NewEncoder(c.out).Encode(hookReply(o.text))
				}
			case <-ctx.Done():
			}
			return nil
		},
	})
	return cmd
}

// sessionInput is what Claude Code writes to a SessionStart hook.
type sessionInput struct {
	SessionID string `json:"session_id"`
	Cwd       string `json:"cwd"`
	Source    string `json:"source"` // startup, resume, clear, compact
}

// hookReply tells the model and the person the same.
func hookReply(text string) any {
	type output struct {
		Event   string `json:"hookEventName"`
		Context string `json:"additionalContext"`
	}
	return struct {
		Output  output `json:"hookSpecificOutput"`
		Message string `json:"systemMessage"`
	}{output{"SessionStart", text}, text}
}

// sessionStart records the session, and returns what there is to say of its
// project.
func sessionStart(ctx context.Context, c *cli) (string, error) {
	var in sessionInput
	if err := json.NewDecoder(io.LimitReader(c.in, hookInput)).Decode(&in); err != nil {
		return "", fmt.Errorf("reading the hook's input: %w", err)
	}
	places, err := config.Find()
	if err != nil {
		return "", err
	}
	// The front end of a process that has just started knows its session.
	client := ""
	if in.Source != "startup" {
		client = caller.ClientID(c.getenv("CLAUDE_CODE_MESSAGING_TOKEN"))
	}
	if isClient(client) && isSession(in.SessionID) {
		// Not left to the daemon: there may be none, or one that does not answer.
		// Where it cannot be recorded the session goes by its first name.
		if places.Ensure() == nil {
			_ = sessionsOf(places).add(client, in.SessionID, c.now())
		}
	}
	// In the middle of a session nothing is announced: the model knows.
	project := caller.Project(c.getenv("CLAUDE_PROJECT_DIR"), in.Cwd)
	if in.Source == "compact" || !filepath.IsAbs(project) {
		return "", nil
	}
	news, err := sqlite.Unannounced(ctx, places.DB, project)
	if err != nil || !news {
		return "", err
	}
	d, err := c.connect(ctx, !c.stopped())
	if err != nil {
		return "", err
	}
	reply, err := d.Session(ctx, ipc.SessionRequest{Client: client, Current: in.SessionID, Project: project, Announce: true})
	if err != nil {
		return "", err
	}
	return announcement(reply.Jobs, in.SessionID), nil
}

// announcement puts jobs into a few lines: first those that wait for the
// person, then what ended, then what runs. What ended of the session's own may
// come by itself: its client asks for the tasks that it knows of.
func announcement(found []ipc.Job, session string) string {
	var waiting, ended, own, running []ipc.Job
	for _, j := range found {
		switch {
		case len(j.Questions) > 0:
			waiting = append(waiting, j)
		case j.Final && j.Session == session:
			own = append(own, j)
		case j.Final:
			ended = append(ended, j)
		default:
			running = append(running, j)
		}
	}
	var lines []string
	add := func(what string, list []ipc.Job, tell func(ipc.Job) string) {
		if len(list) == 0 {
			return
		}
		var parts []string
		for i, j := range list {
			if i == hookLines {
				parts = append(parts, fmt.Sprintf("and %d more (list_jobs)", len(list)-i))
				break
			}
			parts = append(parts, fmt.Sprintf("%s (job %s%s)", jobs.OneLine(j.Name, 40), shortID(j.ID), tell(j)))
		}
		lines = append(lines, what+": "+strings.Join(parts, ", "))
	}
	state := func(j ipc.Job) string { return ", " + strings.ReplaceAll(j.State, "_", " ") }
	add("waiting for the person's answer", waiting, func(j ipc.Job) string {
		return "; " + jobs.OneLine(j.Questions[0].Message, 60) + "; in a shell: jobd answer " + shortID(j.ID)
	})
	add("ended while this session was away (get_job gives the result, if it does not come by itself)", own, state)
	add("ended, and nobody was told (get_job gives the result)", ended, state)
	add("still running", running, func(ipc.Job) string { return "" })
	if len(lines) == 0 {
		return ""
	}
	return "jobd, this project's jobs. " + strings.Join(lines, "\n")
}
