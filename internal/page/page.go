// Package page serves the page on which a person types a secret for a waiting
// job. It listens on loopback only, under a token that nobody can guess, and
// hands the value on without keeping it.
//
// A question's address is the same as long as its daemon's database and port
// are, so an address that a client has shown survives a restart of the daemon.
// The first browser that opens it owns it, by a cookie; any other visitor, a
// visit after the value was given, a wrong token, and a foreign Host or Origin
// header get an empty "not found".
package page

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	_ "embed"
	"encoding/base64"
	"errors"
	"fmt"
	"html/template"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// A Question is what the page tells of a question that is open.
type Question struct {
	Job, Name, Project, Message, Title, Description string
	Left                                            time.Duration
}

// A Desk knows the open questions for secrets. Its methods are called with the
// ids that were given to [Server.URL].
type Desk interface {
	// Question returns an open question; ok is false once it is closed or a
	// value was given.
	Question(ctx context.Context, job, ask string) (q Question, ok bool)
	// Answer hands the value to the waiting job. fault is a sentence for the
	// person where the value cannot be taken and may be typed again.
	Answer(ctx context.Context, job, ask, value string) (fault string, err error)
	// Decline tells the job that the person says no.
	Decline(ctx context.Context, job, ask string) error
}

// Options are what a server is made of.
type Options struct {
	Desk Desk
	// Key makes the tokens; equal keys give equal addresses.
	Key []byte
	// Port is tried first; 0 or a taken one = any.
	Port int
	// Bound is told the port that is used. It may be nil.
	Bound func(port int)
	Log   *slog.Logger
}

// The bounds of a request.
const (
	maxBody     = 64 << 10
	readTimeout = 10 * time.Second
)

// A Server serves the pages. It listens from the first call of URL on, and
// until Close.
type Server struct {
	o Options

	mu    sync.Mutex
	addr  string // "127.0.0.1:port", "" = not listening
	http  *http.Server
	done  chan struct{}
	doors map[string]*door // by token
}

// door is one question's address.
type door struct {
	job, ask string
	owner    string // the cookie of the browser that opened it, "" = nobody yet
}

// New returns a server that does not listen yet.
func New(o Options) *Server { return &Server{o: o, doors: map[string]*door{}} }

// URL returns the address of a question's page, and starts to listen. It
// returns "" where no port can be had; the log says why.
func (s *Server) URL(job, ask string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.listen(); err != nil {
		s.o.Log.Error("serving the page for a secret", "job", job, "err", err)
		return ""
	}
	token := s.token(job, ask)
	if s.doors[token] == nil {
		s.doors[token] = &door{job: job, ask: ask}
	}
	return "http://" + s.addr + "/ask/" + token
}

func (s *Server) token(job, ask string) string {
	m := hmac.New(sha256.New, s.o.Key)
	m.Write([]byte("page\x00" + job + "\x00" + ask))
	return base64.RawURLEncoding.EncodeToString(m.Sum(nil))
}

// listen binds the port. s.mu must be held.
func (s *Server) listen() error {
	if s.addr != "" {
		return nil
	}
	var lc net.ListenConfig
	l, err := lc.Listen(context.Background(), "tcp4", fmt.Sprintf("127.0.0.1:%d", s.o.Port))
	if err != nil && s.o.Port != 0 {
		l, err = lc.Listen(context.Background(), "tcp4", "127.0.0.1:0")
	}
	if err != nil {
		return fmt.Errorf("listening on loopback: %w", err)
	}
	s.addr = l.Addr().String()
	s.http = &http.Server{Handler: s, ReadHeaderTimeout: readTimeout, ReadTimeout: readTimeout, WriteTimeout: readTimeout, IdleTimeout: readTimeout,
		MaxHeaderBytes: 16 << 10, ErrorLog: slog.NewLogLogger(s.o.Log.Handler(), slog.LevelDebug)}
	s.done = make(chan struct{})
	go func() {
		defer close(s.done)
		if err := s.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			s.o.Log.Error("serving the page for a secret", "err", err)
		}
	}()
	if s.o.Bound != nil {
		s.o.Bound(l.Addr().(*net.TCPAddr).Port)
	}
	return nil
}

// Close ends the server and its connections.
func (s *Server) Close() error {
	s.mu.Lock()
	srv, done := s.http, s.done
	s.mu.Unlock()
	if srv == nil {
		return nil
	}
	err := srv.Close()
	<-done
	return err
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'sha256-"+styleHash+"'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
	// Not no-referrer: it would make browsers send "Origin: null" with the form.
	h.Set("Referrer-Policy", "same-origin")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")

	s.mu.Lock()
	host := s.addr
	s.mu.Unlock()
	token, ok := strings.CutPrefix(r.URL.Path, "/ask/")
	origin := r.Header.Get("Origin")
	site := r.Header.Get("Sec-Fetch-Site")
	switch {
	case !ok, r.Host != host,
		origin != "" && origin != "http://"+host,
		site == "cross-site" && r.Method != http.MethodGet:
		http.NotFound(w, r)
		return
	case r.Method == http.MethodPost && origin == "":
		// Every browser names the origin of a form that is posted.
		http.NotFound(w, r)
		return
	}
	d := s.door(token)
	if d == nil {
		http.NotFound(w, r)
		return
	}
	q, open := s.o.Desk.Question(r.Context(), d.job, d.ask)
	if !open || !s.admit(w, r, d, token) {
		http.NotFound(w, r)
		return
	}
	switch r.Method {
	case http.MethodGet:
		s.show(w, http.StatusOK, view{Question: q})
	case http.MethodPost:
		s.take(w, r, d, q)
	default:
		h.Set("Allow", "GET, POST")
		http.Error(w, "", http.StatusMethodNotAllowed)
	}
}

// door returns the address that a token opens, nil if none.
func (s *Server) door(token string) *door {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.doors[token]
}

// cookie is the name of the cookie that makes a browser the owner of a page.
const cookie = "jobd-ask"

// admit reports whether a visitor may see the page: the first one, who gets the
// cookie, and who brings it later.
func (s *Server) admit(w http.ResponseWriter, r *http.Request, d *door, token string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d.owner != "" {
		c, err := r.Cookie(cookie)
		return err == nil && subtle.ConstantTimeCompare([]byte(c.Value), []byte(d.owner)) == 1
	}
	if r.Method != http.MethodGet {
		return false
	}
	d.owner = rand.Text()
	http.SetCookie(w, &http.Cookie{Name: cookie, Value: d.owner, Path: "/ask/" + token, HttpOnly: true, SameSite: http.SameSiteStrictMode})
	return true
}

// take takes the form that the page sent.
func (s *Server) take(w http.ResponseWriter, r *http.Request, d *door, q Question) {
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	if err := r.ParseForm(); err != nil {
		s.show(w, http.StatusBadRequest, view{Question: q, Fault: "The value is too long; at most 64 KiB are taken."})
		return
	}
	if r.PostForm.Get("action") == "decline" {
		if err := s.o.Desk.Decline(r.Context(), d.job, d.ask); err != nil {
			s.fail(w, q, err)
			return
		}
		s.show(w, http.StatusOK, view{Question: q, Done: "Declined. The job was told that you said no."})
		return
	}
	fault, err := s.o.Desk.Answer(r.Context(), d.job, d.ask, r.PostForm.Get("value"))
	switch {
	case err != nil:
		s.fail(w, q, err)
	case fault != "":
		s.show(w, http.StatusUnprocessableEntity, view{Question: q, Fault: fault})
	default:
		s.show(w, http.StatusOK, view{Question: q, Done: "Handed to the job. You may close this page."})
	}
}

func (s *Server) fail(w http.ResponseWriter, q Question, err error) {
	s.o.Log.Error("taking a secret", "job", q.Job, "err", err)
	s.show(w, http.StatusInternalServerError, view{Question: q, Fault: "jobd could not take the value; try again, or see its log."})
}

// view is what the template shows.
type view struct {
	Question
	Fault, Done string
}

//go:embed page.html
var source string

//go:embed page.css
var style string

// styleHash allows the one style sheet in the page's security policy.
var styleHash = func() string {
	sum := sha256.Sum256([]byte(style))
	return base64.StdEncoding.EncodeToString(sum[:])
}()

var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"style": func() template.CSS { return template.CSS(style) },
	"round": func(d time.Duration) string { return d.Round(time.Second).String() },
	"short": func(id string) string { return id[:min(len(id), 12)] },
}).Parse(source))

func (s *Server) show(w http.ResponseWriter, status int, v view) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	if err := page.Execute(w, v); err != nil {
		s.o.Log.Debug("writing a page", "err", err)
	}
}
