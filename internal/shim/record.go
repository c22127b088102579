package shim

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"jobd/internal/jobs"
)

// recordVersion is the version of every record that this build writes. A
// record of a greater version is refused; fields are only ever added within
// one.
const recordVersion = 1

// maxRecord bounds what is read of a record: a spec holds the command line,
// which the kernel bounds, and the tool's arguments.
const maxRecord = 16 << 20

// A record is the content of one file of a bundle.
type record interface {
	// check returns an error for a record that this build cannot have written.
	check() error
}

// An instant is a jobs.Instant on disk.
type instant struct {
	Wall   time.Time     `json:"wall"`
	Run    time.Duration `json:"run_ns"`
	Boot   time.Duration `json:"boot_ns"`
	BootID string        `json:"boot_id"`
}

func fromInstant(t jobs.Instant) instant {
	return instant{Wall: t.Wall, Run: t.Run, Boot: t.Boot, BootID: t.BootID}
}

func (t instant) instant() jobs.Instant {
	return jobs.Instant{Wall: t.Wall, Run: t.Run, Boot: t.Boot, BootID: t.BootID}
}

// specRecord is spec.json.
type specRecord struct {
	Version int       `json:"version"`
	Created instant   `json:"created"`
	Spec    jobs.Spec `json:"spec"`
}

func (r *specRecord) check() error {
	if len(r.Spec.Argv) == 0 {
		return errors.New("it has no command")
	}
	return nil
}

// shimRecord is the content of shim.lock: which process the shim is. It means
// something only while the lock is held, and for a while after: the shim is the
// leader of the session that its job runs in.
type shimRecord struct {
	Version int `json:"version"`
	PID     int `json:"pid"`
	// Start is the process's start time in the platform's own form. With the
	// pid it names one process of a boot.
	Start  string `json:"start"`
	BootID string `json:"boot_id"`
}

func (r *shimRecord) check() error {
	if r.PID <= 1 || r.Start == "" {
		return fmt.Errorf("it names no process (pid %d, start %q)", r.PID, r.Start)
	}
	return nil
}

// launchRecord is launch.json.
type launchRecord struct {
	Version int     `json:"version"`
	At      instant `json:"at"`
}

func (r *launchRecord) check() error { return nil }

// startedRecord is started.json.
type startedRecord struct {
	Version int     `json:"version"`
	PID     int     `json:"pid"`
	At      instant `json:"at"`
}

func (r *startedRecord) check() error {
	if r.PID <= 1 {
		return fmt.Errorf("it has the process id %d", r.PID)
	}
	return nil
}

// stopRecord is stop.
type stopRecord struct {
	Version int        `json:"version"`
	Cause   jobs.Cause `json:"cause"`
	At      instant    `json:"at"`
}

func (r *stopRecord) check() error {
	switch r.Cause {
	case jobs.CauseCancel, jobs.CauseTimeout, jobs.CauseUnanswered:
		return nil
	}
	return fmt.Errorf("it has the unknown cause %q", r.Cause)
}

// exitRecord is exit.json.
type exitRecord struct {
	Version    int     `json:"version"`
	NotStarted string  `json:"not_started,omitempty"`
	Code       int     `json:"code"`
	Signal     int     `json:"signal,omitempty"`
	SignalName string  `json:"signal_name,omitempty"`
	StopFirst  bool    `json:"stop_first,omitempty"`
	At         instant `json:"at"`
	// OutputTotal and OutputDropped are bytes.
	OutputTotal   int64 `json:"output_total"`
	OutputDropped int64 `json:"output_dropped"`
}

func (r *exitRecord) check() error {
	switch {
	case r.Code < -1 || r.Code > 255:
		return fmt.Errorf("it has the exit code %d", r.Code)
	case r.Signal < 0 || r.Signal > 127:
		return fmt.Errorf("it has the signal %d", r.Signal)
	case (r.Code == -1) != (r.Signal != 0 || r.NotStarted != ""):
		return fmt.Errorf("it has the exit code %d with signal %d", r.Code, r.Signal)
	case r.OutputDropped < 0 || r.OutputTotal < r.OutputDropped:
		return fmt.Errorf("it counts %d bytes of output, %d of them dropped", r.OutputTotal, r.OutputDropped)
	}
	return nil
}

func (r *exitRecord) exit() jobs.Exit {
	return jobs.Exit{NotStarted: r.NotStarted, Code: r.Code, Signal: r.Signal, SignalName: r.SignalName,
		StopFirst: r.StopFirst, At: r.At.instant()}
}

// encode returns the bytes of a record.
func encode(r record) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // for the person who reads a command line in it
	if err := e.Encode(r); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// decode fills a record from its bytes.
func decode(b []byte, into record) error {
	// The version first: a newer record may be of another shape.
	var v struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(b, &v); err != nil {
		return err
	}
	switch {
	case v.Version > recordVersion:
		return fmt.Errorf("it has version %d, and this jobd knows up to %d: use the newer jobd that wrote it", v.Version, recordVersion)
	case v.Version < 1:
		return fmt.Errorf("it has version %d", v.Version)
	}
	if err := json.Unmarshal(b, into); err != nil {
		return err
	}
	return into.check()
}

// readRecord reads a record of the bundle. A file that is not there gives an
// error that wraps [fs.ErrNotExist]; a damaged or newer one an error that names
// the file.
func (b bundle) readRecord(name string, into record) error {
	raw, err := load(b.file(name), maxRecord)
	if err != nil {
		return err // it names the file
	}
	if err := decode(raw, into); err != nil {
		return fmt.Errorf("the record %s cannot be used: %w", b.file(name), err)
	}
	return nil
}

// writeRecord writes a record of the bundle, all or nothing.
func (b bundle) writeRecord(name string, r record, durable bool) error {
	raw, err := encode(r)
	if err != nil {
		return fmt.Errorf("encoding %s: %w", name, err)
	}
	return replace(b.file(name), raw, durable)
}
