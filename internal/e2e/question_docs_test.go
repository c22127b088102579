//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"jobd/internal/e2e/rig"
)

// page is docs/questions.md.
func page(t *testing.T) string {
	t.Helper()
	return string(read(t, rig.Root(t)+"/docs/questions.md"))
}

// The scripts of the page run as printed, with a person who answers everything.
func TestQuestion_ScriptsOfThePageRunAsPrinted(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	scripts := blocks(page(t), "sh")
	if len(scripts) < 3 {
		t.Fatalf("the page has %d scripts", len(scripts))
	}
	for i, script := range scripts {
		name := fmt.Sprint("script ", i+1)
		r.Jobd("run", "--name", name, "--", "sh", "-ec", script)
		id := named(t, r, name).ID
		asked := 0
		rig.Until(t, time.Minute, name+" has ended", func() bool {
			for _, q := range schemas(t, r, id) {
				asked++
				if q.Mode == "url" {
					answerSecret(t, r, id, "hunter2")
					continue
				}
				cmd := r.Command(t.Context(), "jobd", "answer", id, "--question", q.Key, "--stdin")
				cmd.Stdin = strings.NewReader(filledIn(t, q.Schema))
				if out := rig.Run(t, cmd); out.Code != 0 {
					t.Fatalf("%s asks %q, and the answer %s is not taken: %s", name, q.Message, filledIn(t, q.Schema), out.Stderr)
				}
			}
			return r.Job(id).Final()
		})
		if job := r.Job(id); job.State != "succeeded" || asked == 0 {
			t.Errorf("%s asked %d questions and is %s: %s%s", name, asked, job.State, script, r.Jobd("logs", id))
		}
	}
}

// A schemaQuestion is an open question with its form.
type schemaQuestion struct {
	Key     string          `json:"key"`
	Mode    string          `json:"mode"`
	Message string          `json:"message"`
	Schema  json.RawMessage `json:"schema"`
}

func schemas(t *testing.T, r *rig.Rig, id string) []schemaQuestion {
	t.Helper()
	var jobs []struct {
		Questions []schemaQuestion `json:"questions"`
	}
	decode(t, []byte(r.Jobd("status", id, "--json")), &jobs)
	return jobs[0].Questions
}

// filledIn fills a form in as an agreeable person does.
func filledIn(t *testing.T, schema json.RawMessage) string {
	t.Helper()
	var form struct {
		Properties map[string]struct {
			Type, Pattern, Format string
			Minimum               *float64
			Enum                  []string
			OneOf                 []struct{ Const string }
			Items                 struct {
				Enum  []string
				AnyOf []struct{ Const string }
			}
		}
	}
	decode(t, schema, &form)
	content := map[string]any{}
	for name, f := range form.Properties {
		switch {
		case f.Type == "boolean":
			content[name] = true
		case f.Type == "array":
			content[name] = f.Items.Enum[:1]
		case f.Type != "string":
			content[name] = *f.Minimum
		case len(f.Enum) > 0:
			content[name] = f.Enum[0]
		case len(f.OneOf) > 0:
			content[name] = f.OneOf[0].Const
		case f.Pattern != "":
			content[name] = "1.2.3"
		case f.Format == "email":
			content[name] = "a@example.org"
		default:
			content[name] = "a word"
		}
	}
	data, err := json.Marshal(content)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// The request that needs no jobd is sent as printed. Its daemon is killed
// meanwhile; the same id makes the repeated request the same question.
func TestQuestion_RequestOfThePageIsSentAsPrinted(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	front := r.Front("session")
	scripts := blocks(page(t), "bash")
	if len(scripts) != 1 || !strings.Contains(scripts[0], "curl ") {
		t.Fatalf("the page has %d requests", len(scripts))
	}
	_, printed, _ := strings.Cut(page(t), "It prints `")
	printed, _, _ = strings.Cut(printed, "`")

	id := front.Run(map[string]any{"name": "curl", "command": scripts[0]})
	before := untilAsked(t, r, id, 1)[0]
	killed := r.KillDaemon()
	if now := untilAsked(t, r, id, 1)[0]; now.ID != before.ID || now.Key != before.Key {
		t.Errorf("after the kill of the daemon %d another question is open: %+v, before %+v", killed, now, before)
	}
	// Only an asker that has come back keeps its question.
	rig.Until(t, 20*time.Second, "curl waits again", func() bool {
		return len(r.Processes("curl")) == 1 && strings.Contains(r.Jobd("logs", id), "curl: (")
	})
	send(t, front, id, map[string]any{before.Key: accept(map[string]any{"confirm": true})})
	done := front.UntilDone(time.Minute, id)
	if got := r.Jobd("logs", id); done.Result.IsError || !strings.HasSuffix(strings.TrimSpace(got), printed) {
		t.Errorf("it printed %s, and the page says %s", got, printed)
	}
	if n := questionCount(t, r, id); n != 1 {
		t.Errorf("%d questions were asked", n)
	}

	// A request that is refused says why, and is not repeated for ever.
	bad := strings.Replace(scripts[0], `"type": "boolean"`, `"type": "password"`, 1)
	r.Jobd("run", "--name", "refused", "--", "bash", "-c", bad)
	refused := named(t, r, "refused").ID
	rig.Until(t, time.Minute, "it has ended", func() bool { return r.Job(refused).Final() })
	if text := r.Jobd("logs", refused); r.Job(refused).Code() != 1 || !strings.Contains(text, `has the type \"password\"`) {
		t.Errorf("a refused request ended with %d: %s", r.Job(refused).Code(), text)
	}
}

// The examples for notify tell a person what they should, with texts that try
// to be more than that.
func TestQuestion_NotificationsOfThePageSayWhatTheyShould(t *testing.T) {
	t.Parallel()
	examples := blocks(page(t), "yaml")
	if len(examples) != 3 {
		t.Fatalf("the page has %d examples", len(examples))
	}
	for _, program := range []string{"notify-send", "osascript", "curl"} {
		t.Run(program, func(t *testing.T) {
			t.Parallel()
			i := slices.IndexFunc(examples, func(e string) bool { return strings.Contains(e, program) })
			if i < 0 {
				t.Fatalf("the page has no example for %s", program)
			}
			r := rig.New(t)
			var mu sync.Mutex
			got := ""
			phone := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) {
				body, _ := io.ReadAll(q.Body)
				mu.Lock()
				defer mu.Unlock()
				got = q.Header.Get("Title") + "|" + string(body)
			}))
			defer phone.Close()
			config := strings.ReplaceAll(examples[i], "https://ntfy.sh/TOPIC", phone.URL)
			if program == "curl" && config == examples[i] {
				t.Error("the page names another address for a topic")
			}
			configure(t, r, config)
			fakes := r.Dir + "/fakes"
			if program != "curl" { // the programs of a desktop are not here
				if err := os.MkdirAll(fakes, 0o700); err != nil {
					t.Fatal(err)
				}
				fake := fmt.Sprintf("#!/bin/sh\nprintf '<%%s>' \"$@\" > %[1]s/told.tmp && mv %[1]s/told.tmp %[1]s/told\n", fakes)
				if err := os.WriteFile(fakes+"/"+program, []byte(fake), 0o700); err != nil { //nolint:gosec // a program
					t.Fatal(err)
				}
			}
			run := r.Command(t.Context(), "jobd", "run", "--name", "-e evil", "--", "jobd", "ask", "@/etc/passwd", "--field", "go:boolean")
			run.Env = r.Env("PATH=" + fakes + ":" + os.Getenv("PATH"))
			if out := rig.Run(t, run); out.Code != 0 {
				t.Fatal(out.Stderr)
			}
			id := r.Jobs()[0].ID
			command := "jobd answer " + id[:8]
			want := map[string]string{
				"notify-send": "<--app-name=jobd><--><jobd: -e evil><@/etc/passwd\n" + command + ">",
				"osascript": "<-e><on run argv><-e><display notification (item 2 of argv) with title (item 1 of argv)><-e><end run>" +
					"<jobd: -e evil><@/etc/passwd: " + command + ">",
				"curl": "jobd: -e evil|@/etc/passwd: " + command,
			}[program]
			rig.Until(t, time.Minute, "the person is told", func() bool {
				mu.Lock()
				defer mu.Unlock()
				if data, err := os.ReadFile(fakes + "/told"); err == nil {
					got = string(data)
				}
				return got != ""
			})
			mu.Lock()
			defer mu.Unlock()
			if got != want {
				t.Errorf("the person was told %q, not %q", got, want)
			}
		})
	}
}
