package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"jobd/internal/config"
	"jobd/internal/ipc"
)

// client returns a client of the daemon of these places.
func client(p config.Places) (*ipc.Client, error) {
	exe, err := config.Sibling("jobd")
	if err != nil {
		return nil, err
	}
	return ipc.New(ipc.Options{
		Socket:     p.Socket,
		Executable: exe,
		Env:        config.DaemonEnv(os.Environ()),
		Prepare:    p.Ensure,
		StartLock:  p.StartLock,
		Stopped:    p.Stopped,
		Log:        p.Log,
		InJob:      os.Getenv(config.EnvJob) != "",
		Version:    buildVersion(),
	}), nil
}

// connect returns a client of this user's daemon; see [cli.connect]. It lives
// as long as the process.
func connect(_ context.Context, start bool) (ipc.Handler, error) {
	p, err := config.Find()
	if err != nil {
		return nil, err
	}
	c, err := client(p)
	if err != nil {
		return nil, err
	}
	if !start {
		return c.Passive(), nil
	}
	return c, nil
}

// started reports whether there is a database; see [cli.started].
func started() (bool, error) {
	p, err := config.Find()
	if err != nil {
		return false, err
	}
	switch _, err := os.Lstat(p.DB); {
	case err == nil:
		return true, nil
	case errors.Is(err, os.ErrNotExist):
		return false, nil
	default:
		return false, fmt.Errorf("looking for the database: %w", err)
	}
}

// statusWithin bounds how long a daemon may take to tell its status.
const statusWithin = 3 * time.Second

// askStatus asks the daemon that runs for its status. It never starts one.
func askStatus(ctx context.Context, p config.Places) (ipc.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, statusWithin)
	defer cancel()
	c := ipc.New(ipc.Options{Socket: p.Socket, Log: p.Log, Stopped: p.Stopped, Version: buildVersion()})
	defer c.Close()
	return c.Status(ctx)
}

// codeIs reports whether err is an [ipc.Error] of this code.
func codeIs(err error, code ipc.Code) bool {
	var e *ipc.Error
	return errors.As(err, &e) && e.Code == code
}

// outsideJob refuses what would make a daemon hang under a job, whose end would
// be the daemon's.
func outsideJob(command string) error {
	if id := os.Getenv(config.EnvJob); id != "" {
		return fmt.Errorf("jobd %s cannot be used inside a job (%s is set, to %.32q); use it in a shell of your own", command, config.EnvJob, id)
	}
	return nil
}
