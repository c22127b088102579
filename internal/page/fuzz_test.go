package page

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

// Whatever is sent to the page, a value is taken only from the browser that
// opened it, and no answer shows one.
func FuzzVisit(f *testing.F) {
	const secret = "s3cret-value"
	form := url.Values{"value": {secret}, "action": {"accept"}}.Encode()
	for _, method := range []string{"GET", "POST", "HEAD", "OPTIONS"} {
		f.Add(method, "/ask/TOKEN", "HOST", "http://HOST", "same-origin", "jobd-ask=OWNER", form)
		f.Add(method, "/ask/TOKEN", "HOST", "", "", "", form)
		f.Add(method, "/ask/TOKEN", "localhost", "http://evil.example", "cross-site", "jobd-ask=x", form)
		f.Add(method, "/ask/", "HOST", "null", "none", "jobd-ask=OWNER; jobd-ask=x", "value=%zz&action=decline")
	}
	f.Fuzz(func(t *testing.T, method, path, host, origin, site, cookies, body string) {
		d := &desk{}
		s := New(Options{Desk: d, Key: []byte("k"), Log: slog.New(slog.DiscardHandler)})
		s.addr = "127.0.0.1:1" // nothing listens: the handler is called
		token := s.token("job", "ask")
		s.doors[token] = &door{job: "job", ask: "ask", owner: "the-owner"}
		fill := strings.NewReplacer("TOKEN", token, "HOST", s.addr, "OWNER", "the-owner").Replace
		r, err := http.NewRequestWithContext(t.Context(), method, "http://x/", strings.NewReader(body))
		if err != nil {
			return // no such request reaches a handler
		}
		r.URL.Path, r.Host = fill(path), fill(host)
		for name, value := range map[string]string{"Origin": fill(origin), "Sec-Fetch-Site": site, "Cookie": fill(cookies), "Content-Type": "application/x-www-form-urlencoded"} {
			if value != "" {
				r.Header.Set(name, value)
			}
		}
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		if w.Code >= 500 {
			t.Errorf("it answered %d", w.Code)
		}
		if strings.Contains(w.Body.String(), secret) {
			t.Error("the answer shows the value")
		}
		mine := strings.Contains(r.Header.Get("Cookie"), "the-owner") && r.Method == http.MethodPost && r.Host == s.addr &&
			r.Header.Get("Origin") == "http://"+s.addr && r.URL.Path == "/ask/"+token
		if (len(d.got) > 0 || d.declined) && !mine {
			t.Errorf("an answer was taken from %s %s, host %q, origin %q, cookies %q", r.Method, r.URL.Path, r.Host, r.Header.Get("Origin"), r.Header.Get("Cookie"))
		}
	})
}
