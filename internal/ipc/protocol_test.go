package ipc

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

var update = flag.Bool("update", false, "write the golden files anew")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// messages are all types that cross the socket, each with every field set.
func messages() []any {
	var all []any
	for _, m := range []any{
		new(Status), new(StopRequest), new(Job), new(Progress), new(Question), new(SubmitRequest), new(SubmitReply), new(ListRequest),
		new(ListReply), new(GetRequest), new(Result), new(OutputRequest), new(Output), new(CancelRequest), new(DeliveredRequest),
		new(AskRequest), new(AwaitRequest), new(Answer), new(AnswerRequest), new(AnswerReply), new(ProgressRequest), new(SetResultRequest),
		new(SessionRequest), new(ToolsRequest), new(ToolsReply), new(Tool), new(PruneRequest), new(PruneReply), new(Empty), new(Error),
	} {
		n := 0
		fill(reflect.ValueOf(m).Elem(), "", &n)
		all = append(all, m)
	}
	return all
}

// fill sets everything in v to something that is not zero and differs.
func fill(v reflect.Value, name string, n *int) {
	*n++
	switch v.Interface().(type) {
	case time.Time:
		v.Set(reflect.ValueOf(time.Date(2026, 1, 2, 3, 4, *n%60, 5_000_000, time.UTC)))
		return
	case json.RawMessage:
		v.Set(reflect.ValueOf(json.RawMessage(`{"` + name + `":1}`)))
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString("a " + name)
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(*n))
	case reflect.Uint32, reflect.Uint64, reflect.Uint8:
		v.SetUint(uint64(*n % 256))
	case reflect.Float64:
		v.SetFloat(float64(*n) + 0.5)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), name, n)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range 2 {
			fill(v.Index(i), name, n)
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf("K"), reflect.ValueOf("v"))
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), v.Type().Field(i).Name, n)
		}
	default:
		panic("fill: " + v.Type().String())
	}
}

// The wire format may only grow: what the golden files hold must be written and
// read for ever, for there are front ends and daemons of every age.
func TestMessagesKeepTheirForm(t *testing.T) {
	for _, m := range messages() {
		name := reflect.TypeOf(m).Elem().Name()
		t.Run(name, func(t *testing.T) {
			got, err := json.MarshalIndent(m, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, '\n')
			path := filepath.Join("testdata", "golden", name+".json")
			if *update {
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(string(want), string(got)); d != "" {
				t.Errorf("written (-want +got):\n%s", d)
			}
			back := reflect.New(reflect.TypeOf(m).Elem()).Interface()
			if err := json.Unmarshal(want, back); err != nil {
				t.Fatal(err)
			}
			// Raw JSON inside is indented by then.
			again, err := json.MarshalIndent(back, "", "  ")
			if err != nil || !bytes.Equal(append(again, '\n'), want) {
				t.Errorf("read back as %s, %v", again, err)
			}
		})
	}
}

// Status and stop are frozen: these texts must never be edited.
func TestStatusAndStopAreFrozen(t *testing.T) {
	for text, m := range map[string]any{
		`{"protocol":1,"version":"v","pid":2,"started_at":"2026-01-02T03:04:05Z","executable":"/bin/jobd","state_dir":"/s","live_jobs":3,"open_questions":4}`: new(Status),
		`{"kill_jobs":true,"hand_over":true}`: new(StopRequest),
	} {
		dec := json.NewDecoder(bytes.NewReader([]byte(text)))
		dec.DisallowUnknownFields()
		if err := dec.Decode(m); err != nil {
			t.Errorf("%T: %v", m, err)
		}
		if got, err := json.Marshal(m); err != nil || string(got) != text {
			t.Errorf("%T: %s, %v", m, got, err)
		}
	}
	if pathStatus != "/status" || pathStop != "/stop" || !routes[pathStatus].frozen || !routes[pathStop].frozen || routes[pathStatus].method != "GET" ||
		routes[pathStop].method != "POST" || HeaderProtocol != "Jobd-Protocol" {
		t.Error("the frozen calls have changed")
	}
}
