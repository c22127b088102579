package jobfile

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// good are files to break: the examples of all keys.
func good() []string {
	var files []string
	for _, k := range keys {
		files = append(files, "jobs:\n"+k.example)
	}
	all := "jobs:\n"
	for i, k := range keys {
		all += strings.Replace(k.example, "  "+firstName(k.example)+":", fmt.Sprintf("  j%d:", i), 1)
	}
	return append(files, all)
}

// firstName is the name of the first job of an example.
func firstName(example string) string {
	name, _, _ := strings.Cut(strings.TrimSpace(example), ":")
	return name
}

// damage changes a file in one of the ways in which files are broken.
func damage(r *rand.Rand, file string) string {
	b := []byte(file)
	at := func() int { return r.IntN(len(b)) }
	bits := []string{"\t", ":", "- ", "[", "]", "{", "}", "\"", "'", "&a ", "*a ", "!!str ", "|", ">", "%", "@", "`", "\x00", "\xff", "\r", "\u2028", "\ufeff", "? ", "<<: ", "---\n", "...\n", "# ", ", ",
		"\n", " ", "null", "true", "-1", ".inf", "0x", "1e999", "run", "params: ", "𝄞"}
	switch r.IntN(8) {
	case 0: // cut off
		return string(b[:at()])
	case 1: // a byte is another one
		b[at()] = byte(r.IntN(256))
	case 2: // something comes in between
		i := at()
		return string(b[:i]) + bits[r.IntN(len(bits))] + string(b[i:])
	case 3: // something is gone
		i := at()
		return string(b[:i]) + string(b[min(len(b), i+1+r.IntN(20)):])
	case 4: // a piece comes twice
		i := at()
		j := min(len(b), i+r.IntN(80))
		return string(b[:j]) + string(b[i:])
	case 5: // lines change places
		lines := strings.Split(file, "\n")
		i, j := r.IntN(len(lines)), r.IntN(len(lines))
		lines[i], lines[j] = lines[j], lines[i]
		return strings.Join(lines, "\n")
	case 6: // a line is indented in another way
		lines := strings.Split(file, "\n")
		i := r.IntN(len(lines))
		lines[i] = strings.Repeat(" ", r.IntN(9)) + strings.TrimLeft(lines[i], " ")
		return strings.Join(lines, "\n")
	case 7: // a name is misspelt
		words := strings.Fields(file)
		w := words[r.IntN(len(words))]
		i := r.IntN(len(w))
		return strings.Replace(file, w, w[:i]+"x"+w[i:], 1)
	}
	return string(b)
}

// A thousand broken files: none crashes the parser, every fault has its place,
// and the files beside them work.
func TestBrokenFilesAreToldAndHarmNoOthers(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 11))
	files := good()
	broken := 0
	for n := 0; broken < 1000; n++ {
		if n > 20_000 {
			t.Fatalf("only %d of %d files were broken", broken, n)
		}
		file := files[r.IntN(len(files))]
		for range 1 + r.IntN(3) {
			if file != "" {
				file = damage(r, file)
			}
		}
		f := Parse("broken.yaml", []byte(file), rules)
		if checkPlaces(t, file, f); t.Failed() {
			t.Fatalf("the file is %q", file)
		}
		if len(f.Faults) == 0 {
			continue // damage that leaves a good file
		}
		broken++
		s := &Set{}
		s.add(f)
		s.add(Parse("good.yaml", []byte("jobs:\n  beside: {description: d, run: x}\n"), rules))
		if _, err := s.Job("beside"); err != nil {
			t.Fatalf("%q beside: %v", file, err)
		}
	}
}

// FuzzParse holds the parser to what [Parse] promises: no panic, a place for
// every fault, and jobs whose schemas can be used.
func FuzzParse(f *testing.F) {
	for _, file := range good() {
		f.Add([]byte(file))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		file := Parse("jobs.yaml", data, rules)
		text := strings.ReplaceAll(string(data), "\r\n", "\n")
		checkPlaces(t, text, file)
		for _, j := range file.Jobs {
			if _, err := resolve(j.InputSchema); err != nil {
				t.Errorf("the schema %s of %s: %v", j.InputSchema, j.Name, err)
			}
			if len(j.Argv) == 0 == (j.Run == "") {
				t.Errorf("%s has not one command", j.Name)
			}
			if call, err := j.Bind(nil, nil); err == nil && len(call.Argv("sh")) == 0 {
				t.Errorf("%s has an empty command", j.Name)
			}
		}
	})
}

// FuzzBind checks that no arguments make a call crash, and that what is bound
// is bound to the same again.
func FuzzBind(f *testing.F) {
	j := Parse("jobs.yaml", []byte(deployFile), rules).Jobs[0]
	f.Add([]byte(`{"commit":"abcdef0"}`))
	f.Add([]byte(`{"commit":"abcdef0","opts":{"name":"x"},"files":["a"],"n":3.0,"x":-1e-9,"note":null}`))
	f.Fuzz(func(t *testing.T, args []byte) {
		call, err := j.Bind(args, nil)
		if err != nil {
			return
		}
		again, err := j.Bind(call.Arguments, nil)
		if err != nil || string(again.Arguments) != string(call.Arguments) {
			t.Errorf("%s is bound to %s, and that to %v, %v", args, call.Arguments, again, err)
		}
	})
}
