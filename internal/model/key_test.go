package model

import "testing"

// TestKey: what String returns is read back as it was, and namespaces count before names.
func TestKey(t *testing.T) {
	for text, want := range map[string]Key{
		"a/b": {"a", "b"}, "b": {Name: "b"}, "a/kind/b": {"a", "kind/b"}, "": {},
	} {
		if got := ParseKey(text); got != want || got.String() != text {
			t.Errorf("%q: %+v, %q", text, got, got.String())
		}
	}
	if (Key{"a", "z"}).Compare(Key{"b", "a"}) >= 0 || (Key{"a", "b"}).Compare(Key{"a", "a"}) <= 0 || (Key{"a", "b"}).Compare(Key{"a", "b"}) != 0 {
		t.Error("the order is not that of namespace and name")
	}
}
