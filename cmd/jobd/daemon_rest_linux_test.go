package main

import (
	"bytes"
	"os"
	"strconv"
	"testing"
	"time"
)

// A daemon that is asked nothing takes its rest once, and again after it was
// asked something.
func TestARestingDaemonGivesItsMemoryBack(t *testing.T) {
	var r rest
	before := mappedOfFiles(t)
	r.look(lookEvery - time.Second)
	if r.taken {
		t.Error("it rests though it was asked something since it looked last")
	}
	r.look(lookEvery)
	if after := mappedOfFiles(t); !r.taken || after >= before {
		t.Errorf("at rest (%v) it maps %d KiB of files, and %d before", r.taken, after, before)
	}
	r.look(0)
	if r.taken {
		t.Error("it was asked something and takes no further rest")
	}
}

// mappedOfFiles returns how much of its files the process maps, in KiB.
func mappedOfFiles(t *testing.T) int {
	t.Helper()
	raw, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := bytes.Cut(raw, []byte("RssFile:"))
	n, err := strconv.Atoi(string(bytes.Fields(rest)[0]))
	if err != nil {
		t.Fatal(err)
	}
	return n
}
