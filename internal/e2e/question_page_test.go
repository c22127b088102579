//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/chromedp"

	"jobd/internal/e2e/rig"
)

// The secret that a person types. Its core is searched for afterwards, in every
// place and in the encodings that would hide it.
const (
	secretCore  = "x7Qk93vLmZp2Rw8t"
	secretValue = `pä"ss &<` + secretCore + `>+%\`
)

// A browser is a Chromium without a screen, in a home of its own.
type browser struct {
	t   *testing.T
	ctx context.Context
}

// openBrowser starts Chromium with a window as large as a phone's. The name
// evil.example leads to this machine, as it does when a name is rebound.
func openBrowser(t *testing.T) *browser {
	t.Helper()
	home := t.TempDir()
	flags := []chromedp.ExecAllocatorOption{chromedp.Env("HOME=" + home), chromedp.UserDataDir(home + "/profile"),
		chromedp.NoFirstRun, chromedp.Headless, chromedp.NoSandbox, chromedp.DisableGPU, chromedp.WindowSize(390, 844)}
	for _, flag := range []string{"disable-quic", "disable-background-networking", "disable-component-update", "disable-sync", "no-default-browser-check"} {
		flags = append(flags, chromedp.Flag(flag, true))
	}
	flags = append(flags, chromedp.Flag("host-resolver-rules", "MAP evil.example 127.0.0.1"))
	ctx, cancel := chromedp.NewExecAllocator(context.Background(), flags...)
	t.Cleanup(cancel)
	ctx, _ = chromedp.NewContext(ctx)
	b := &browser{t: t, ctx: ctx}
	t.Cleanup(func() {
		if err := chromedp.Cancel(ctx); err != nil {
			t.Errorf("ending Chromium: %v", err)
		}
	})
	b.begin()
	b.do(chromedp.EmulateViewport(390, 844, chromedp.EmulatePortrait, chromedp.EmulateMobile, chromedp.EmulateTouch))
	return b
}

// begin opens the window, which must not be part of anything with a deadline.
func (b *browser) begin() {
	b.t.Helper()
	if err := chromedp.Do(b.ctx); err != nil {
		b.t.Fatalf("starting Chromium: %v", err)
	}
}

// stranger is another browser, which shares nothing with the first but the
// program.
func (b *browser) stranger() *browser {
	b.t.Helper()
	ctx, cancel := chromedp.NewContext(b.ctx, chromedp.WithNewBrowserContext())
	b.t.Cleanup(cancel)
	other := &browser{t: b.t, ctx: ctx}
	other.begin()
	return other
}

type action = chromedp.Action[chromedp.Void]

func (b *browser) do(actions ...action) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, time.Minute)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		b.t.Fatalf("in Chromium: %v", err)
	}
}

// told runs what gives a value.
func told[T any](b *browser, a chromedp.Action[T]) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, time.Minute)
	defer cancel()
	value, err := chromedp.Run(ctx, a)
	if err != nil {
		b.t.Fatalf("in Chromium: %v", err)
	}
	return value
}

// visit goes to an address and returns the status and what is shown.
func (b *browser) visit(address string) (int64, string) {
	b.t.Helper()
	return b.answered(chromedp.Navigate(address))
}

// answered does what loads a page, and returns its status and what it shows.
func (b *browser) answered(actions ...action) (int64, string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, time.Minute)
	defer cancel()
	response, err := chromedp.RunResponse(ctx, actions...)
	if err != nil {
		b.t.Fatalf("in Chromium: %v", err)
	}
	return response.Status, told(b, chromedp.Evaluate[string]("document.body.innerText"))
}

// shoot keeps a picture of the page where the variable JOBD_SHOTS names a folder.
func (b *browser) shoot(name string) {
	b.t.Helper()
	picture := told(b, chromedp.FullScreenshot(100))
	if dir := os.Getenv("JOBD_SHOTS"); dir != "" {
		if err := os.WriteFile(filepath.Join(dir, name+".png"), picture, 0o600); err != nil {
			b.t.Error(err)
		}
	}
}

// nothing checks that an answer is empty of all that a stranger must not see.
func nothing(t *testing.T, who string, status int64, text string) {
	t.Helper()
	if status != http.StatusNotFound || strings.Contains(text, "token") || strings.Contains(text, "publish") {
		t.Errorf("%s got %d %q", who, status, text)
	}
}

func TestQuestion_ForASecretIsAnsweredInABrowser(t *testing.T) {
	t.Parallel()
	p := sitDown(t)
	r := p.rig
	watch := watchProcesses()
	job := p.starts("publish", `v=$(jobd ask "The token of the registry?" --secret --raw) || exit
printf %s "$v" | sha256sum; unset v
jobd ask "Another one?" --secret; echo second $?`)
	address := p.isAskedByURL("The token of the registry?")
	p.consents()

	b := openBrowser(t)
	var errs complaints
	errs.listen(b)
	status, text := b.visit(address)
	for _, part := range []string{"The token of the registry?", "publish", r.Project, "Claude does not see it"} {
		if !strings.Contains(text, part) {
			t.Errorf("the page does not show %q: %d %q", part, status, text)
		}
	}
	b.shoot("page")
	b.fitsAPhone()

	// Nobody else gets anything, as long as the question is open.
	other := b.stranger()
	status, text = other.visit(address)
	nothing(t, "a second visitor", status, text)
	at, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	wrong := *at
	wrong.Path = at.Path[:len(at.Path)-1] + string(at.Path[len(at.Path)-1]^1)
	status, text = b.visit(wrong.String())
	nothing(t, "a wrong token", status, text)
	rebound := *at
	rebound.Host = "evil.example:" + at.Port()
	status, text = b.visit(rebound.String())
	nothing(t, "a name that leads here", status, text)
	status, text = b.postedFromElsewhere(address)
	nothing(t, "a form of another origin", status, text)
	if now := r.Job(job.ID); now.State != "waiting" {
		t.Errorf("after all that the job is %s", now.State)
	}

	// An empty value is refused; the right one reaches the job.
	b.do(chromedp.Navigate(address))
	if status, text = b.answered(chromedp.Click(chromedp.CSS(`button[value=accept]`))); status != http.StatusUnprocessableEntity || !strings.Contains(text, "A value is needed") {
		t.Errorf("an empty value got %d %q", status, text)
	}
	b.shoot("fault")
	b.do(chromedp.SendKeys(chromedp.CSS(`#value`), secretValue))
	if status, text = b.answered(chromedp.Click(chromedp.CSS(`button[value=accept]`))); status != http.StatusOK || !strings.Contains(text, "Handed to the job") {
		t.Errorf("the value got %d %q", status, text)
	}
	b.shoot("done")
	sum := sha256.Sum256([]byte(secretValue))
	rig.Until(t, time.Minute, "the job has the value", func() bool { return strings.Contains(r.Jobd("logs", job.ID), hex.EncodeToString(sum[:])) })
	status, text = b.visit(address)
	nothing(t, "a visit after the value", status, text)

	// The second page is declined.
	second := p.isAskedByURL("Another one?")
	if second == address {
		t.Error("two questions share an address")
	}
	p.consents()
	b.do(chromedp.Navigate(second))
	if status, text = b.answered(chromedp.Click(chromedp.CSS(`button[value=decline]`))); status != http.StatusOK || !strings.Contains(text, "Declined") {
		t.Errorf("declining got %d %q", status, text)
	}
	p.modelIsTold("<status>completed</status>", "second 10")
	p.noErrors()
	if said := errs.all(); len(said) != 0 {
		t.Errorf("the browser complained: %q", said)
	}
	p.pane.Exit()
	isNowhere(t, p, watch.end())
}

// isAskedByURL waits for Claude Code's question to open an address, and returns
// the address.
func (p *person) isAskedByURL(question string) string {
	p.t.Helper()
	p.isAsked("wants to open a URL", question, "http://127.0.0.1:")
	_, rest, _ := strings.Cut(p.form(), "http://127.0.0.1:")
	return "http://127.0.0.1:" + strings.Fields(rest)[0]
}

// fitsAPhone checks what a picture would show to a person.
func (b *browser) fitsAPhone() {
	b.t.Helper()
	type sizes struct {
		Inner, Scroll, Width float64 // of the window, the page and its styled body, in CSS pixels
		Type, Focus          string
		Controls             []struct{ Left, Right, Height float64 }
		Scripts              int
	}
	page := told(b, chromedp.Evaluate[sizes](`(() => ({
		Inner: innerWidth, Scroll: document.documentElement.scrollWidth, Width: parseFloat(getComputedStyle(document.body).maxWidth),
		Type: document.querySelector("#value").type, Focus: document.activeElement.id, Scripts: document.scripts.length,
		Controls: [...document.querySelectorAll("input, button")].map(e => { const r = e.getBoundingClientRect(); return {Left: r.left, Right: r.right, Height: r.height} }),
	}))()`))
	switch {
	case page.Inner != 390 || page.Scroll > page.Inner:
		b.t.Errorf("the page is %v wide in a window of %v", page.Scroll, page.Inner)
	case page.Width < 100:
		b.t.Errorf("the style sheet is not applied: %+v", page)
	case page.Type != "password" || page.Focus != "value" || page.Scripts != 0 || len(page.Controls) != 3:
		b.t.Errorf("the page is %+v", page)
	}
	for _, c := range page.Controls {
		if c.Left < 0 || c.Right > page.Inner || c.Height < 40 {
			b.t.Errorf("a control reaches from %v to %v and is %v high", c.Left, c.Right, c.Height)
		}
	}
}

// postedFromElsewhere has a page of another origin post to the address, and
// returns what comes of it.
func (b *browser) postedFromElsewhere(address string) (int64, string) {
	b.t.Helper()
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `<!DOCTYPE html><form method=post action=%q><input name=value value=evil><button name=action value=accept>go</button></form>`, address)
	}))
	defer elsewhere.Close()
	b.do(chromedp.Navigate(elsewhere.URL))
	return b.answered(chromedp.Click(chromedp.CSS("button")))
}

// complaints are what a browser's console says of the pages, such as a style
// sheet that the page's own policy forbids. A status is none, and what it says
// of a host that gets nothing does not matter.
type complaints struct {
	mu   sync.Mutex
	said []string
}

func (c *complaints) listen(b *browser) {
	b.t.Helper()
	err := chromedp.Listen(b.ctx, func(event any) {
		if e, ok := event.(*log.EventEntryAdded); ok && e.Entry.Source != log.EntrySourceNetwork && !strings.Contains(e.Entry.URL, "evil.example") {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.said = append(c.said, e.Entry.URL+": "+e.Entry.Text)
		}
	})
	if err != nil {
		b.t.Fatal(err)
	}
}

func (c *complaints) all() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.said)
}

// A processWatch looks at every process again and again.
type processWatch struct {
	stop chan struct{}
	done chan struct{}
	seen []byte // arguments and environment of all that held the secret
	n    int
}

// watchProcesses sees what anybody can see with ps, of every process that lives
// longer than a few milliseconds.
func watchProcesses() *processWatch {
	w := &processWatch{stop: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(w.done)
		for {
			select {
			case <-w.stop:
				return
			case <-time.After(10 * time.Millisecond):
			}
			files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
			for _, file := range files {
				for _, name := range []string{file, filepath.Dir(file) + "/environ"} {
					if data, err := os.ReadFile(name); err == nil && holdsSecret(data) {
						w.seen = append(append(w.seen, name...), data...)
					}
				}
			}
			w.n++
		}
	}()
	return w
}

func (w *processWatch) end() *processWatch {
	close(w.stop)
	<-w.done
	return w
}

// forms are the ways in which the core of the secret could be written.
var forms = func() [][]byte {
	all := [][]byte{[]byte(secretCore), []byte(hex.EncodeToString([]byte(secretCore)))}
	for shift := range 3 {
		// The digits that do not depend on what stands before or behind.
		text := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("?", shift) + secretCore))
		all = append(all, []byte(text[4:20]))
	}
	return all
}()

func holdsSecret(data []byte) bool {
	return slices.ContainsFunc(forms, func(form []byte) bool { return bytes.Contains(data, form) })
}

// isNowhere searches the secret in all that was written, shown and sent.
func isNowhere(t *testing.T, p *person, w *processWatch) {
	t.Helper()
	if w.n < 10 {
		t.Errorf("the processes were looked at %d times only", w.n)
	}
	if len(w.seen) > 0 {
		t.Errorf("a process shows the secret: %q", w.seen)
	}
	// The daemon holds the database open, with its write-ahead log.
	found := map[string]bool{}
	err := filepath.WalkDir(p.rig.Dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if holdsSecret(data) {
			t.Errorf("%s holds the secret", path)
		}
		found[filepath.Base(path)] = true
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	for _, name := range []string{"jobd.db", "jobd.db-wal", "jobd.log", "spec.json", "wire.jsonl", ".claude.json", p.claude.Session() + ".jsonl"} {
		if !found[name] {
			t.Errorf("the search did not come by a file %s", name)
		}
	}
	for _, turn := range p.claude.API.Turns() {
		if holdsSecret(turn.Body) {
			t.Errorf("the model was sent the secret: %s", turn.Text)
		}
	}
	for _, e := range p.claude.Wire() {
		if holdsSecret([]byte(e.Text)) {
			t.Errorf("the wire carries the secret: %s", e.Text)
		}
	}
	if text := p.rig.Jobd("status", "--all", "--json") + p.rig.Jobd("logs", p.rig.Jobs()[0].ID); holdsSecret([]byte(text)) {
		t.Errorf("the command line shows the secret: %s", text)
	}
}

// The page is there again after a kill of the daemon, at the address that was
// given out, although nobody asks for anything but the page.
func TestQuestion_PageOutlivesTheDaemon(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	r.Jobd("run", "--name", "publish", "--", "sh", "-c", `v=$(jobd ask "The token?" --secret --raw) && echo "${#v} characters"`)
	id := r.Jobs()[0].ID
	address := untilAsked(t, r, id, 1)[0].URL
	client := &http.Client{Timeout: 10 * time.Second, Jar: new(oneCookie)}
	open := func() bool {
		resp, err := client.Get(address)
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	}
	if !open() {
		t.Fatalf("nobody serves %s", address)
	}
	r.KillDaemon()
	rig.Until(t, time.Minute, "the page is there again", open)

	form := strings.NewReader(url.Values{"value": {"hunter2"}, "action": {"accept"}}.Encode())
	post, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address, form)
	if err != nil {
		t.Fatal(err)
	}
	post.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	post.Header.Set("Origin", "http://"+post.URL.Host)
	resp, err := client.Do(post)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("the value got %s", resp.Status)
	}
	r.UntilState(time.Minute, id, "succeeded")
	if text := r.Jobd("logs", id); !strings.Contains(text, "7 characters") {
		t.Errorf("the job says %s", text)
	}
}

// oneCookie keeps the newest cookie, as a browser does that visits one page.
type oneCookie struct{ cookies []*http.Cookie }

func (c *oneCookie) SetCookies(_ *url.URL, cookies []*http.Cookie) { c.cookies = cookies }

func (c *oneCookie) Cookies(*url.URL) []*http.Cookie { return c.cookies }
