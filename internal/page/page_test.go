package page

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// desk is one open question.
type desk struct {
	got      []string
	declined bool
}

func (d *desk) Question(context.Context, string, string) (Question, bool) {
	return Question{Job: "0123456789abcdef", Name: "<b>deploy</b>", Project: "/p", Message: "The <i>vault</i> key?", Title: "Key", Left: time.Minute}, len(d.got) == 0 && !d.declined
}

func (d *desk) Answer(_ context.Context, job, ask, value string) (string, error) {
	if value == "" {
		return "A value is needed.", nil
	}
	d.got = append(d.got, job+"/"+ask+"="+value)
	return "", nil
}

func (d *desk) Decline(context.Context, string, string) error { d.declined = true; return nil }

func serve(t *testing.T) (*desk, *Server, string) {
	t.Helper()
	d := &desk{}
	s := New(Options{Desk: d, Key: []byte("k"), Log: slog.New(slog.DiscardHandler)})
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	u := s.URL("job", "ask")
	if u == "" {
		t.Fatal("no address")
	}
	return d, s, u
}

// visit sends a request as a browser with the cookies given would.
func visit(t *testing.T, method, u string, form url.Values, cookies []*http.Cookie, header map[string]string) (*http.Response, string) {
	t.Helper()
	var body io.Reader
	if form != nil {
		body = strings.NewReader(form.Encode())
	}
	r, err := http.NewRequestWithContext(t.Context(), method, u, body)
	if err != nil {
		t.Fatal(err)
	}
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Origin", "http://"+r.URL.Host)
	}
	for k, v := range header {
		if k == "Host" {
			r.Host = v
		} else if v == "" {
			r.Header.Del(k)
		} else {
			r.Header.Set(k, v)
		}
	}
	for _, c := range cookies {
		r.AddCookie(c)
	}
	tr := &http.Transport{}
	defer tr.CloseIdleConnections()
	resp, err := tr.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(b)
}

func TestTheValueReachesTheJobOnce(t *testing.T) {
	d, _, u := serve(t)
	resp, body := visit(t, "GET", u, nil, nil, nil)
	if resp.StatusCode != 200 || !strings.Contains(body, "The &lt;i&gt;vault&lt;/i&gt; key?") || !strings.Contains(body, "&lt;b&gt;deploy&lt;/b&gt;") {
		t.Fatalf("%d %s", resp.StatusCode, body)
	}
	mine := resp.Cookies()
	if resp, _ := visit(t, "GET", u, nil, mine, nil); resp.StatusCode != 200 {
		t.Errorf("a reload got %d", resp.StatusCode)
	}
	resp, body = visit(t, "POST", u, url.Values{"value": {""}, "action": {"accept"}}, mine, nil)
	if resp.StatusCode != 422 || !strings.Contains(body, "A value is needed.") {
		t.Errorf("an empty value got %d %s", resp.StatusCode, body)
	}
	resp, body = visit(t, "POST", u, url.Values{"value": {"s3cret"}, "action": {"accept"}}, mine, nil)
	if resp.StatusCode != 200 || strings.Contains(body, "s3cret") {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
	if len(d.got) != 1 || d.got[0] != "job/ask=s3cret" {
		t.Errorf("the job got %q", d.got)
	}
	for _, method := range []string{"GET", "POST"} {
		var form url.Values
		if method == "POST" {
			form = url.Values{"value": {"again"}}
		}
		if resp, body := visit(t, method, u, form, mine, nil); resp.StatusCode != 404 || strings.Contains(body, "vault") {
			t.Errorf("%s after the value got %d %s", method, resp.StatusCode, body)
		}
	}
}

func TestDecline(t *testing.T) {
	d, _, u := serve(t)
	resp, _ := visit(t, "GET", u, nil, nil, nil)
	visit(t, "POST", u, url.Values{"action": {"decline"}, "value": {"x"}}, resp.Cookies(), nil)
	if !d.declined || len(d.got) != 0 {
		t.Errorf("declined %t, got %q", d.declined, d.got)
	}
}

func TestStrangersGetNothing(t *testing.T) {
	d, _, u := serve(t)
	first, _ := visit(t, "GET", u, nil, nil, nil)
	mine := first.Cookies()
	value := url.Values{"value": {"evil"}}
	for _, c := range []struct {
		name, method, url string
		form              url.Values
		cookies           []*http.Cookie
		header            map[string]string
	}{
		{"a second visitor", "GET", u, nil, nil, nil},
		{"a second visitor posts", "POST", u, value, nil, nil},
		{"a wrong token", "GET", u[:len(u)-1] + "_", nil, mine, nil},
		{"no token", "GET", u[:strings.LastIndex(u, "/")+1], nil, mine, nil},
		{"the root", "GET", strings.Split(u, "ask/")[0], nil, mine, nil},
		{"a foreign host", "GET", u, nil, mine, map[string]string{"Host": "evil.example"}},
		{"a rebound name", "POST", u, value, mine, map[string]string{"Host": "evil.example:80"}},
		{"a foreign origin", "POST", u, value, mine, map[string]string{"Origin": "http://evil.example"}},
		{"the origin null", "POST", u, value, mine, map[string]string{"Origin": "null"}},
		{"no origin", "POST", u, value, mine, map[string]string{"Origin": ""}},
		{"a cross-site post", "POST", u, value, mine, map[string]string{"Sec-Fetch-Site": "cross-site"}},
		{"a guessed cookie", "GET", u, nil, []*http.Cookie{{Name: cookie, Value: "x"}}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			resp, body := visit(t, c.method, c.url, c.form, c.cookies, c.header)
			if resp.StatusCode != 404 || strings.Contains(body, "vault") || len(resp.Cookies()) != 0 {
				t.Errorf("got %d %s", resp.StatusCode, body)
			}
		})
	}
	if len(d.got) != 0 {
		t.Errorf("the job got %q", d.got)
	}
}

func TestTheAddressSurvivesARestart(t *testing.T) {
	_, s, u := serve(t)
	if s.URL("job", "ask") != u {
		t.Error("a second call gave another address")
	}
	parsed, err := url.Parse(u)
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(parsed.Port())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	next := New(Options{Desk: &desk{}, Key: []byte("k"), Port: n, Log: slog.New(slog.DiscardHandler)})
	defer next.Close()
	if got := next.URL("job", "ask"); got != u {
		t.Errorf("got %s, want %s", got, u)
	}
	if next.URL("job", "other") == u {
		t.Error("two questions share an address")
	}
}
