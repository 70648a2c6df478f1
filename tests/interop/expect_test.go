package interop

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
)

func TestSubset(t *testing.T) {
	const got = `{"state":"Established","n":3,"list":[{"a":1,"b":2},{"a":2}],"none":[],"o":{"x":{}}}`
	for want, ok := range map[string]bool{
		`{"state":"Established"}`:            true,
		`{"state":"Idle"}`:                   false,
		`{"state":"~^Est"}`:                  true,
		`{"state":"~^Idle"}`:                 false,
		`{"absent":null}`:                    true,
		`{"state":null}`:                     false,
		`{"absent":"~."}`:                    false,
		`{"n":3}`:                            true,
		`{"n":4}`:                            false,
		`{"n":">=3"}`:                        true,
		`{"n":">=4"}`:                        false,
		`{"n":"<=3"}`:                        true,
		`{"n":"<=2"}`:                        false,
		`{"list":[{"a":2},{"a":1}]}`:         true,
		`{"list":[{"a":2},{"a":2}]}`:         false,
		`{"list":[{"a":1,"b":3}]}`:           false,
		`{"list":{"#":2}}`:                   true,
		`{"list":{"#":1}}`:                   false,
		`{"list":[]}`:                        false,
		`{"list":["=",{"a":2},{"a":1}]}`:     true,
		`{"list":["=",{"a":2}]}`:             false,
		`{"list":["=",{"a":2},{"a":3}]}`:     false,
		`{"none":[]}`:                        true,
		`{"o":{"#":1}}`:                      true,
		`{"o":{"x":{"#":0}}}`:                true,
		`{"o":{"y":{}}}`:                     false,
		`["state"]`:                          false,
		`{"list":[{"a":1},{"a":2},{"a":3}]}`: false,
	} {
		var w, g any
		if err := json.Unmarshal([]byte(want), &w); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(got), &g); err != nil {
			t.Fatal(err)
		}
		if err := Subset(w, g); (err == nil) != ok {
			t.Errorf("%s: %v, want match %v", want, err, ok)
		}
	}
}

func TestExpectation(t *testing.T) {
	e, err := ParseExpectation("# says\n> text\n a   b\n!c d\n$ json\n[{\"x\":1}]\n")
	if err != nil {
		t.Fatal(err)
	}
	for text, wrong := range map[string]string{"1 a  b\nc": "", "a\nb": `want "a b"`, "a b\nc  d": `want "!c d"`} {
		say := func(_ context.Context, cmd string) (string, error) {
			return map[string]string{"text": text, "json": `[{"x":1,"y":2}]`}[cmd], nil
		}
		err := e.Check(t.Context(), say, say)
		if (err == nil) != (wrong == "") || err != nil && !strings.Contains(err.Error(), wrong) {
			t.Errorf("%q: %v, want %q", text, err, wrong)
		}
	}
	silent := func(context.Context, string) (string, error) { return "", nil }
	if err := e.Check(t.Context(), silent, silent); err == nil || !strings.Contains(err.Error(), "json: ") {
		t.Errorf("no answer: %v", err)
	}
	for _, bad := range []string{"", "text first\n> x\ny\n", "> nothing\n> wanted\nx\n", "> x\n{bad}\n"} {
		if _, err := ParseExpectation(bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}
