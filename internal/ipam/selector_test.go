package ipam

import "testing"

func TestSelector(t *testing.T) {
	have := map[string]string{"a": "1", "b": ""}
	e := func(key string, op Operator, values ...string) Selector {
		return Selector{Expressions: []Expression{{key, op, values}}}
	}
	for _, c := range []struct {
		name string
		s    Selector
		want bool
	}{
		{"empty", Selector{}, true},
		{"label", Selector{MatchLabels: map[string]string{"a": "1"}}, true},
		{"label with another value", Selector{MatchLabels: map[string]string{"a": "2"}}, false},
		{"absent label is not an empty one", Selector{MatchLabels: map[string]string{"c": ""}}, false},
		{"In", e("a", In, "0", "1"), true},
		{"In, other", e("a", In, "0"), false},
		{"In, absent", e("c", In, ""), false},
		{"NotIn", e("a", NotIn, "0"), true},
		{"NotIn, listed", e("a", NotIn, "0", "1"), false},
		{"NotIn, absent", e("c", NotIn, ""), true},
		{"Exists", e("b", Exists), true},
		{"Exists, absent", e("c", Exists), false},
		{"DoesNotExist", e("c", DoesNotExist), true},
		{"DoesNotExist, there", e("b", DoesNotExist), false},
		{"unknown operator", e("a", "Gt", "0"), false},
		{"both must hold", Selector{MatchLabels: map[string]string{"a": "1"}, Expressions: []Expression{{"c", Exists, nil}}}, false},
	} {
		if got := c.s.Matches(have); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}
