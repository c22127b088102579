package shim

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"strings"

	"jobd/internal/jobs"
)

// The env file is one line, "jobd-env 1 LENGTH CRC\n", and then LENGTH bytes:
// each NAME=VALUE ended by a NUL byte. CRC is the CRC-32C of those bytes in
// eight hexadecimal digits; it is there so that a torn write is seen, not
// against forgery.
const (
	envVersion = 1
	// maxEnv is more than the kernel gives any process (execve(2): a quarter of
	// the stack's limit, 6 MiB at most on Linux).
	maxEnv = 16 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checkEnviron refuses an environment that exec cannot give to a command.
func checkEnviron(environ []string) error {
	size := 0
	for _, kv := range environ {
		size += len(kv) + 1
		name, _, ok := strings.Cut(kv, "=")
		switch {
		case strings.IndexByte(kv, 0) >= 0:
			return &jobs.Error{Kind: jobs.ErrInvalid, Message: fmt.Sprintf("the environment variable %q has a NUL byte in it; remove it", name)}
		case !ok || name == "":
			// The text is not shown: it may be the end of a secret.
			return &jobs.Error{Kind: jobs.ErrInvalid, Message: fmt.Sprintf("the environment has an entry of %d bytes that is not NAME=VALUE", len(kv))}
		}
	}
	if size > maxEnv {
		return &jobs.Error{Kind: jobs.ErrInvalid, Message: fmt.Sprintf("the environment is %d bytes; at most %d can be given to a command", size, maxEnv)}
	}
	return nil
}

// encodeEnviron returns the content of an env file.
func encodeEnviron(environ []string) []byte {
	n := 0
	for _, kv := range environ {
		n += len(kv) + 1
	}
	body := make([]byte, 0, n)
	for _, kv := range environ {
		body = append(append(body, kv...), 0)
	}
	return append(environHead(body), body...)
}

func environHead(body []byte) []byte {
	return fmt.Appendf(nil, "jobd-env %d %d %08x\n", envVersion, len(body), crc32.Checksum(body, castagnoli))
}

// decodeEnviron returns the environment in the content of an env file.
func decodeEnviron(b []byte) ([]string, error) {
	head, body, ok := bytes.Cut(b, []byte("\n"))
	if !ok {
		return nil, errors.New("it has no first line")
	}
	var version, length int
	var sum uint32
	if _, err := fmt.Sscanf(string(head), "jobd-env %d %d %x", &version, &length, &sum); err != nil {
		return nil, errors.New("its first line is not that of an environment")
	}
	switch {
	case version != envVersion:
		return nil, fmt.Errorf("it has version %d, and this jobd knows %d", version, envVersion)
	case length != len(body):
		return nil, fmt.Errorf("it has %d of %d bytes", len(body), length)
	case !bytes.Equal(b[:len(head)+1], environHead(body)):
		return nil, errors.New("its checksum is wrong")
	case len(body) == 0:
		return nil, nil
	case body[len(body)-1] != 0:
		return nil, errors.New("its last entry has no end")
	}
	return strings.Split(string(body[:len(body)-1]), "\x00"), nil
}

// readEnviron reads the bundle's env file.
func (b bundle) readEnviron() ([]string, error) {
	raw, err := load(b.file(fileEnv), maxEnv+1024)
	if err != nil {
		return nil, err
	}
	environ, err := decodeEnviron(raw)
	if err != nil {
		return nil, fmt.Errorf("the environment in %s cannot be used: %w", b.file(fileEnv), err)
	}
	return environ, nil
}
