package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"

	"jobd/internal/clock"
	"jobd/internal/config"
	"jobd/internal/config/limits"
	forms "jobd/internal/form"
	"jobd/internal/jobs"
	"jobd/internal/notify"
	"jobd/internal/page"
	"jobd/internal/shim"
	"jobd/internal/sqlite"
)

// wire makes the service of a daemon. It returns when every job of before is
// taken over. A database that turns out to be damaged is set aside for an empty
// one, into which the supervisor puts back the jobs that have a bundle.
func wire(ctx context.Context, in surroundings) (*service, error) {
	svc, err := assemble(ctx, in)
	if !errors.Is(err, sqlite.ErrDamaged) {
		return svc, err
	}
	aside, aerr := sqlite.SetAside(in.places.DB)
	if aerr != nil {
		return nil, errors.Join(err, aerr)
	}
	in.log.Error("the database is damaged: it was set aside, and its jobs are put back from their bundles; idempotency keys, questions and marks of delivery are lost",
		"err", err, "aside", aside)
	return assemble(ctx, in)
}

// assemble is the one place where the parts of jobd are put together.
func assemble(ctx context.Context, in surroundings) (_ *service, err error) {
	var opened []func() error
	shut := func() error {
		var errs []error
		for i := len(opened) - 1; i >= 0; i-- {
			errs = append(errs, opened[i]())
		}
		return errors.Join(errs...)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, shut())
		}
	}()

	p := in.places
	lim, err := limits.Load(p.ConfigFile)
	if err != nil {
		return nil, err
	}
	now, err := clock.New()
	if err != nil {
		return nil, err
	}
	shimPath, err := config.Sibling("jobd-shim")
	if err != nil {
		return nil, err
	}
	var sup *jobs.Supervisor
	var serves atomic.Bool
	store, err := sqlite.Open(ctx, p.DB, sqlite.Options{
		OnDamage: func(id string, err error) {
			in.log.Error("a job's row cannot be read", "job", id, "err", err)
			sup.Damaged(id)
		},
		OnSuspect: func(err error) {
			if serves.Load() {
				in.log.Error("the database is damaged; another daemon takes over, which looks at all of it", "err", err)
				_ = in.leave(true) // which fails for a stop only
			}
		},
	})
	if err != nil {
		return nil, err
	}
	opened = append(opened, store.Close)
	runner, err := shim.NewRunner(shim.Options{
		BundleDir: p.Bundles, ShimPath: shimPath, StateDir: p.StateDir, Environ: config.DaemonEnv(os.Environ()), Clock: now, Log: in.log,
	})
	if err != nil {
		return nil, err
	}
	opened = append(opened, runner.Close)
	teller := notify.New(lim.Notify, os.Environ(), in.log)
	opened = append(opened, func() error { teller.Close(); return nil })
	step := faults(p, in.log)
	a := &api{
		step: step,
		log:  in.log, status: in.status, leave: in.leave, files: newCatalog(p), sessions: sessionsOf(p), bundles: p.Bundles,
		defaults: jobDefaults{
			Timeout: lim.Timeout, QuestionTimeout: lim.QuestionTimeout, AnswerWithin: lim.AnswerWithin,
			OutputLimit: lim.OutputLimit, Unattended: jobs.Unattended(lim.Unattended), RunJob: lim.RunJob,
		},
		socket: p.Socket, home: p.Home, binDir: filepath.Dir(shimPath),
	}
	sup = jobs.NewSupervisor(jobs.Options{
		Store: store, Runner: runner, Clock: now, Log: in.log, Forms: forms.Forms{},
		MaxRunning: lim.MaxRunning, Retention: lim.Retention, Notify: tell(teller), Rerun: a.rerun, Step: step,
	})
	opened = append(opened, func() error { sup.Close(); return nil })
	if err := sup.Recover(ctx); err != nil {
		return nil, fmt.Errorf("taking over the jobs: %w", err)
	}
	secrets, err := secretPage(ctx, in, store, sup)
	if err != nil {
		return nil, err
	}
	opened = append(opened, secrets.Close)

	a.sup, a.page = sup, secrets.URL
	serves.Store(true)
	return &service{
		handler: a,
		run:     sup.Run,
		busy: func() bool {
			live, _ := sup.Live()
			return live > 0
		},
		close: shut,
	}, nil
}

// The settings by which the page for secrets keeps its addresses when the
// daemon is replaced.
const (
	settingPageKey  = "page_key"
	settingPagePort = "page_port"
)

// secretPage returns the page on which a person types a secret.
func secretPage(ctx context.Context, in surroundings, store jobs.Store, sup *jobs.Supervisor) (*page.Server, error) {
	fresh := make([]byte, 32)
	rand.Read(fresh)
	text, err := store.SetSetting(ctx, settingPageKey, hex.EncodeToString(fresh), true)
	if err != nil {
		return nil, fmt.Errorf("reading the key of the page for secrets: %w", err)
	}
	key, err := hex.DecodeString(text)
	if err != nil {
		return nil, fmt.Errorf("reading the key of the page for secrets: %w", err)
	}
	saved, err := store.Setting(ctx, settingPagePort)
	if err != nil {
		return nil, fmt.Errorf("reading the port of the page for secrets: %w", err)
	}
	port, _ := strconv.Atoi(saved) // none and nonsense mean any
	secrets := page.New(page.Options{
		Desk: desk{sup}, Key: key, Port: port, Log: in.log,
		Bound: func(port int) {
			if _, err := store.SetSetting(context.WithoutCancel(ctx), settingPagePort, strconv.Itoa(port), false); err != nil {
				in.log.Error("storing the port of the page for secrets", "err", err)
			}
		},
	})
	// The addresses that were given out before are served again at once.
	found, err := sup.Jobs(ctx, jobs.Filter{Live: true})
	if err != nil {
		return nil, fmt.Errorf("reading the open questions: %w", err)
	}
	for i := range found {
		for _, q := range found[i].Open() {
			if q.Secret {
				secrets.URL(found[i].ID, q.ID)
			}
		}
	}
	return secrets, nil
}
