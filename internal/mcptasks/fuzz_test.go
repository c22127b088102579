package mcptasks_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Whatever the parameters of a request, the connection answers the next one.
func FuzzRequests(f *testing.F) {
	files, err := filepath.Glob("testdata/wire/*.txt")
	if err != nil || len(files) == 0 {
		f.Fatalf("there is no traffic in testdata/wire: %v", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		request, _, _ := strings.Cut(strings.TrimPrefix(string(text), "> "), "\n")
		method, params, _ := strings.Cut(request, " ")
		f.Add(method, []byte(params), strings.Contains(file, "legacy"))
		f.Add(method, []byte(strings.NewReplacer(`"done"`, `["done"]`, `{}`, `5`).Replace(params)), true)
	}
	f.Fuzz(func(t *testing.T, method string, params []byte, legacy bool) {
		var line bytes.Buffer
		// Lines that are no JSON are refused before they get here.
		if json.Compact(&line, params) != nil || len(method) > 100 {
			return
		}
		ext, server := shelfServer()
		p := connect(t, ext, server)
		if legacy {
			p.close()
			p = open(t, ext, server, "2025-11-25")
		}
		quoted, err := json.Marshal(method)
		if err != nil {
			t.Fatal(err)
		}
		p.write(`{"jsonrpc":"2.0","id":1000,"method":` + string(quoted) + `,"params":` + line.String() + `}`)
		p.id = 2000
		get := `{"taskId":"working"}`
		if !legacy {
			get = `{"taskId":"working",` + declared + `}`
		}
		if m := p.call("tasks/get", get); m.Error != nil && method != "initialize" {
			t.Errorf("after %s %s: %s", method, params, m.line)
		}
		p.close()
	})
}
