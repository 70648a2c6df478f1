package v1alpha1

import (
	"fmt"
	"slices"
)

// Selector matches objects by their labels, as a LabelSelector of Kubernetes
// does: all of it must hold, and an empty one matches everything. A list of
// selectors matches what any of them matches.
type Selector struct {
	// MatchLabels must all be present with these values.
	// +optional
	// +lbd:values:Pattern=`^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$`
	MatchLabels map[string]string `json:"matchLabels,omitempty"`
	// MatchExpressions must all hold, at most 64.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	MatchExpressions []SelectorRequirement `json:"matchExpressions,omitempty"`
}

// SelectorRequirement is a condition on one label.
//
// +kubebuilder:validation:XValidation:rule="self.operator in ['In', 'NotIn'] ? has(self.values) && self.values.size() > 0 : !has(self.values) || self.values.size() == 0",message="must have at least one value for In and NotIn, and be left out for Exists and DoesNotExist",fieldPath=".values"
type SelectorRequirement struct {
	// Key is that of the label.
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`
	Key string `json:"key"`
	// Operator relates the label to Values.
	Operator SelectorOperator `json:"operator"`
	// Values are at least one for In and NotIn, and none for the others.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:Pattern=`^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$`
	Values []string `json:"values,omitempty"`
}

// SelectorOperator relates a label to values.
//
// +kubebuilder:validation:Enum=In;NotIn;Exists;DoesNotExist
type SelectorOperator string

// The operators of Kubernetes.
const (
	SelectorIn           SelectorOperator = "In"
	SelectorNotIn        SelectorOperator = "NotIn" // holds without the label too
	SelectorExists       SelectorOperator = "Exists"
	SelectorDoesNotExist SelectorOperator = "DoesNotExist"
)

// Matches tells whether labels meet every condition of a valid selector.
func (s Selector) Matches(labels map[string]string) bool {
	for key, value := range s.MatchLabels {
		if have, ok := labels[key]; !ok || have != value {
			return false
		}
	}
	for _, r := range s.MatchExpressions {
		if !r.matches(labels) {
			return false
		}
	}
	return true
}

func (r SelectorRequirement) matches(labels map[string]string) bool {
	value, ok := labels[r.Key]
	switch r.Operator {
	case SelectorIn:
		return ok && slices.Contains(r.Values, value)
	case SelectorNotIn:
		return !ok || !slices.Contains(r.Values, value)
	case SelectorExists:
		return ok
	case SelectorDoesNotExist:
		return !ok
	}
	return false
}

// ruleLabelValue is said of a value of a label.
const ruleLabelValue = "must be letters, digits, -, _ and ., at most 63, beginning and ending with a letter or digit"

// selectors checks a list of selectors.
func (k *checker) selectors(path string, list []Selector) {
	k.atMost(path, len(list), maxSelectors)
	for i, s := range list {
		k.selector(fmt.Sprintf("%s[%d]", path, i), s)
	}
}

// selector checks one selector.
func (k *checker) selector(path string, s Selector) {
	k.labels(path+".matchLabels", s.MatchLabels)
	k.atMost(path+".matchExpressions", len(s.MatchExpressions), maxExpressions)
	for i, r := range s.MatchExpressions {
		k.requirement(fmt.Sprintf("%s.matchExpressions[%d]", path, i), r)
	}
}

// requirement checks one condition of a selector.
func (k *checker) requirement(path string, r SelectorRequirement) {
	if r.Key == "" {
		k.bad(path+".key", nil, ruleRequired)
	} else {
		k.want(isLabelKey(r.Key), path+".key", r.Key,
			"must be [prefix/]name, with a name of at most 63 letters, digits, -, _ and .")
	}
	values := path + ".values"
	switch r.Operator {
	case SelectorIn, SelectorNotIn:
		if len(r.Values) == 0 {
			k.bad(values, nil, "must have at least one value for %s", r.Operator)
		}
		for i, v := range r.Values {
			k.want(v == "" || isQualified(v), fmt.Sprintf("%s[%d]", values, i), v, ruleLabelValue)
		}
	case SelectorExists, SelectorDoesNotExist:
		if len(r.Values) > 0 {
			k.bad(values, nil, "must be left out for %s", r.Operator)
		}
	default:
		oneOf(k, path+".operator", r.Operator, SelectorIn, SelectorNotIn, SelectorExists, SelectorDoesNotExist)
	}
}
