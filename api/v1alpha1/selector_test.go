package v1alpha1

import "testing"

func TestSelector(t *testing.T) {
	have := map[string]string{"a": "1", "b": ""}
	e := func(key string, op SelectorOperator, values ...string) Selector {
		return Selector{MatchExpressions: []SelectorRequirement{{key, op, values}}}
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
		{"In", e("a", SelectorIn, "0", "1"), true},
		{"In, other", e("a", SelectorIn, "0"), false},
		{"In, absent", e("c", SelectorIn, ""), false},
		{"NotIn", e("a", SelectorNotIn, "0"), true},
		{"NotIn, listed", e("a", SelectorNotIn, "0", "1"), false},
		{"NotIn, absent", e("c", SelectorNotIn, ""), true},
		{"Exists", e("b", SelectorExists), true},
		{"Exists, absent", e("c", SelectorExists), false},
		{"DoesNotExist", e("c", SelectorDoesNotExist), true},
		{"DoesNotExist, there", e("b", SelectorDoesNotExist), false},
		{"unknown operator", e("a", "Gt", "0"), false},
		{"both must hold", Selector{MatchLabels: map[string]string{"a": "1"}, MatchExpressions: []SelectorRequirement{{"c", SelectorExists, nil}}}, false},
	} {
		if got := c.s.Matches(have); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}
