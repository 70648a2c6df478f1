package shortlist

import "testing"

func TestJoin(t *testing.T) {
	for want, names := range map[string][]string{
		"": nil, "a": {"a"}, "a, b": {"a", "b"}, "a, b and 1 more": {"a", "b", "c"}, "a, b and 2 more": {"a", "b", "c", "d"},
	} {
		if got := Join(names, 2); got != want {
			t.Errorf("%q: %q, want %q", names, got, want)
		}
	}
}
