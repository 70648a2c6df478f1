package ipam

import "slices"

// Operator relates a label to the values of an Expression.
type Operator string

// The operators of label selectors in Kubernetes.
const (
	In           Operator = "In"
	NotIn        Operator = "NotIn"
	Exists       Operator = "Exists"
	DoesNotExist Operator = "DoesNotExist"
)

// Expression is one condition of a Selector.
type Expression struct {
	Key      string
	Operator Operator
	Values   []string // for In and NotIn
}

// Selector matches sets of labels: all of it must hold. An empty one matches
// everything.
type Selector struct {
	MatchLabels map[string]string
	Expressions []Expression
}

// Matches tells whether the labels meet every condition. As in Kubernetes, NotIn
// holds for a label that is absent, and an unknown operator never holds.
func (s Selector) Matches(labels map[string]string) bool {
	for k, v := range s.MatchLabels {
		if got, ok := labels[k]; !ok || got != v {
			return false
		}
	}
	for _, e := range s.Expressions {
		if !e.matches(labels) {
			return false
		}
	}
	return true
}

func (e Expression) matches(labels map[string]string) bool {
	v, ok := labels[e.Key]
	switch e.Operator {
	case In:
		return ok && slices.Contains(e.Values, v)
	case NotIn:
		return !ok || !slices.Contains(e.Values, v)
	case Exists:
		return ok
	case DoesNotExist:
		return !ok
	}
	return false
}

// anyMatches tells whether one of the selectors matches.
func anyMatches(list []Selector, labels map[string]string) bool {
	return slices.ContainsFunc(list, func(s Selector) bool { return s.Matches(labels) })
}
