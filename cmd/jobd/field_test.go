package main

import (
	"encoding/json"
	"strings"
	"testing"

	"jobd/internal/form"
)

func TestFieldSyntax(t *testing.T) {
	for _, tt := range []struct {
		text, want string // want is the schema of the property
		optional   bool
	}{
		{`confirm:boolean`, `{"type":"boolean"}`, false},
		{`confirm:bool,default=yes`, `{"type":"boolean","default":true}`, false},
		{`note?:string,max=200`, `{"type":"string","maxLength":200}`, true},
		{`why:string,title="Why, \"exactly\"?",description=So it is logged`, `{"type":"string","title":"Why, \"exactly\"?","description":"So it is logged"}`, false},
		{`env:choice,enum=staging|production,default=staging`, `{"type":"string","enum":["staging","production"],"default":"staging"}`, false},
		{`env:string,enum=a|b`, `{"type":"string","enum":["a","b"]}`, false},
		{`env:enum,enum=eu=Europe|us`, `{"type":"string","oneOf":[{"const":"eu","title":"Europe"},{"const":"us","title":"us"}]}`, false},
		{`checks:choices,enum=unit|e2e,min=1,max=2,default="unit,e2e"`,
			`{"type":"array","items":{"type":"string","enum":["unit","e2e"]},"minItems":1,"maxItems":2,"default":["unit","e2e"]}`, false},
		{`r:choices,enum=eu=Europe|us=USA`, `{"type":"array","items":{"anyOf":[{"const":"eu","title":"Europe"},{"const":"us","title":"USA"}]}}`, false},
		{`count:integer,min=1,max=10,default=3`, `{"type":"integer","minimum":1,"maximum":10,"default":3}`, false},
		{`ratio:number,min=-0.5,default=1.25`, `{"type":"number","minimum":-0.5,"default":1.25}`, false},
		{`mail:string,format=email`, `{"type":"string","format":"email"}`, false},
		{`tag:text,pattern=^v\d+$`, `{"type":"string","pattern":"^v\\d+$"}`, false},
		{`tag:text,pattern="^(a|b),\d{1,2}$"`, `{"type":"string","pattern":"^(a|b),\\d{1,2}$"}`, false},
	} {
		t.Run(tt.text, func(t *testing.T) {
			f, err := parseFieldFlag(tt.text)
			if err != nil {
				t.Fatal(err)
			}
			if got := string(mustJSON(f.wire())); !sameJSON(t, got, tt.want) {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			if f.required == tt.optional {
				t.Errorf("required is %t", f.required)
			}
			one := questionForm{fields: []field{f}}
			if err := (form.Forms{}).Check(one.schema(), false); err != nil {
				t.Errorf("the schema is not one that a form can have: %v", err)
			}
		})
	}
}

func TestFieldSyntaxFaults(t *testing.T) {
	for text, want := range map[string]string{
		"x:string,title=\xff":       `is not UTF-8 text`,
		`confirm`:                   `"confirm" has no type; write it as NAME:TYPE, for example confirm:boolean`,
		`1x:string`:                 `"1x" is no name for a field`,
		`:string`:                   `"" is no name for a field`,
		`x:strnig`:                  `the field "x": there is no type "strnig"; use string, `,
		`x:string,titel=a`:          `there is no attribute "titel"; did you mean title?`,
		`x:string,zzzzzzzz=a`:       `the attributes are title, description, default, `,
		`x:string,title=a, b`:       `" b" is no attribute; write NAME=VALUE, and put a value that holds a comma in double quotes`,
		`x:string,title="a`:         `a double quote is not closed`,
		`x:string,title=a,title=b`:  `the attribute title is there twice`,
		`x:choice`:                  `a choice needs its values: enum=one|two`,
		`x:boolean,enum=a|b`:        `a boolean has no enum; make it a choice`,
		`x:choice,enum=a|a`:         `the choice "a" is empty or there twice`,
		`x:choice,enum=a|`:          `the choice "" is empty or there twice`,
		`x:choice,enum=a|b,min=1`:   `a choice has no min or max`,
		`x:boolean,max=1`:           `a boolean has no min or max`,
		`x:integer,min=2,max=1`:     `its min 2 is greater than its max 1`,
		`x:string,min=-1`:           `its bound -1 counts something`,
		`x:string,max=1.5`:          `its bound 1.5 counts something`,
		`x:integer,min=few`:         `its min is "few", which is no number`,
		`x:integer,min=NaN`:         `its min is "NaN", which is no number`,
		`x:integer,default=a`:       `its default: it must be a whole number, not "a"`,
		`x:integer,max=3,default=9`: `its default: it must be a whole number of 3 or less`,
		`x:integer,format=email`:    `only text has a format or a pattern, and this is of type integer`,
		`x:choice,enum=a,default=b`: `its default: "b" is no choice; the choices are a`,
	} {
		t.Run(text, func(t *testing.T) {
			_, err := parseFieldFlag(text)
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want an error that holds %q", err, want)
			}
		})
	}
}

func TestAFormKeepsTheOrderOfItsFields(t *testing.T) {
	schema := `{"type":"object","properties":{"z":{"type":"string","title":"Last letter"},"a":{"type":"boolean","default":true},` +
		`"m":{"type":"string","enum":["x","y"],"enumNames":["Ex","Why"]}},"required":["z","a"]}`
	f, err := parseForm([]byte(schema))
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(f.names(), " "); got != "z a m" {
		t.Errorf("the fields are %s", got)
	}
	content, err := contentOf(f, []string{"m=why", "z=1"})
	if err != nil || string(content) != `{"z":"1","a":true,"m":"y"}` {
		t.Errorf("got %s, %v", content, err)
	}
}

func TestAnswersAreConvertedByTheSchema(t *testing.T) {
	f := formOf(t, "s:string,max=3", "i:integer,min=1,max=9", "n?:number", "b?:boolean", "c?:choice,enum=eu=Europe|us", "l?:choices,enum=x|y|z,max=2",
		"d?:string,format=date", "m?:string,format=email")
	for _, tt := range []struct {
		args, want string // want is JSON, or the error
	}{
		{"s=ab i=3", `{"s":"ab","i":3}`},
		{"s=1 i=3 n=1.50 b=YES c=europe l=y,x d=2026-11-29 m=a@b.c", `{"s":"1","i":3,"n":1.5,"b":true,"c":"eu","l":["y","x"],"d":"2026-11-29","m":"a@b.c"}`},
		{"s=a i=3 l=x,x", `{"s":"a","i":3,"l":["x"]}`},
		{"s=a i=3 l=", `{"s":"a","i":3,"l":[]}`},
		{"s= i=3", `{"s":"","i":3}`},
		{"s=a=b i=3", `{"s":"a=b","i":3}`},
		{"i=3", "the field s is missing; it must be text of at most 3 characters"},
		{"s=abcd i=3", "s: it must be text of at most 3 characters"},
		{"s=a i=0", "i: it must be a whole number from 1 to 9"},
		{"s=a i=1.5", `i: it must be a whole number from 1 to 9, not "1.5"`},
		{"s=a i=3 n=NaN", `n: it must be a number, not "NaN"`},
		{"s=a i=3 b=perhaps", `b: it must be yes or no, not "perhaps"`},
		{"s=a i=3 c=asia", `c: "asia" is no choice; the choices are eu, us`},
		{"s=a i=3 l=x,y,z", "l: it must be at most 2 of x, y, z"},
		{"s=a i=3 d=yesterday", "d: it must be a date such as 2026-11-29"},
		{"s=a i=3 m=me", "m: it must be an email address such as name@example.com"},
		{"s=a i=3 q=1", `there is no field "q"; the fields are s, i, n, b, c, l, d, m`},
		{"s=a s=b i=3", "the field s is given twice"},
	} {
		t.Run(tt.args, func(t *testing.T) {
			content, err := contentOf(f, strings.Fields(tt.args))
			got := string(content)
			if err != nil {
				got = err.Error()
			}
			if got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			if err == nil {
				if err := (form.Forms{}).Validate(f.schema(), content); err != nil {
					t.Errorf("the daemon would refuse it: %v", err)
				}
			}
		})
	}
}

func TestBareValues(t *testing.T) {
	for value, want := range map[string]string{`"a b"`: "a b", `true`: "true", `3`: "3", `1.5`: "1.5", `["x","y"]`: "x\ny", `[]`: ""} {
		if got := bare(json.RawMessage(value)); got != want {
			t.Errorf("%s: got %q, want %q", value, got, want)
		}
	}
}

// FuzzFieldSyntax sees that whatever is taken as a field gives a schema that
// package form takes too, or names its fault, and that it reads back the same.
func FuzzFieldSyntax(f *testing.F) {
	for _, seed := range []string{`a:string`, `a?:choice,enum=x|y=Z,default=x`, `a:integer,min=1,max=3`, `a:text,pattern="x,y"`, `a:choices,enum=a|b,min=1`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		fl, err := parseFieldFlag(text)
		if err != nil {
			return
		}
		one := questionForm{fields: []field{fl}}
		if (form.Forms{}).Check(one.schema(), false) != nil {
			return
		}
		again, err := parseForm(one.schema())
		if err != nil {
			t.Fatalf("%q gives a schema that cannot be read: %v", text, err)
		}
		if a, b := string(one.schema()), string(again.schema()); a != b {
			t.Errorf("%q gives %s, which reads back as %s", text, a, b)
		}
	})
}

func formOf(t *testing.T, fields ...string) *questionForm {
	t.Helper()
	f := &questionForm{}
	for _, text := range fields {
		fl, err := parseFieldFlag(text)
		if err != nil {
			t.Fatal(err)
		}
		f.fields = append(f.fields, fl)
	}
	return f
}

func sameJSON(t *testing.T, a, b string) bool {
	t.Helper()
	var x, y any
	if err := json.Unmarshal([]byte(a), &x); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(b), &y); err != nil {
		t.Fatal(err)
	}
	return string(mustJSON(x)) == string(mustJSON(y))
}
