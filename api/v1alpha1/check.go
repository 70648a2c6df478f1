package v1alpha1

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// The sentences that more than one field needs.
const (
	ruleRequired  = "is required"
	ruleSubdomain = "must be lower case letters, digits, - and ., as in a DNS name (DNS-1123)"
	ruleDNSLabel  = "must be lower case letters, digits and -, at most 63 (DNS-1123)"
	ruleAbsPath   = "must be an absolute path"
)

// checker collects the rules that an object breaks.
type checker struct {
	errs []FieldError
}

// bad adds an error about a value; a nil value is not shown.
func (c *checker) bad(path string, value any, format string, args ...any) {
	c.errs = append(c.errs, FieldError{Path: path, Value: value, Rule: fmt.Sprintf(format, args...)})
}

// want adds an error unless ok.
func (c *checker) want(ok bool, path string, value any, rule string) {
	if !ok {
		c.errs = append(c.errs, FieldError{Path: path, Value: value, Rule: rule})
	}
}

// between adds an error unless low <= v <= high.
func between[T cmp.Ordered](c *checker, path string, v, low, high T) {
	if v < low || v > high {
		c.bad(path, v, "must be from %v to %v", low, high)
	}
}

// duration adds an error unless low <= v <= high.
func (c *checker) duration(path string, v Duration, low, high time.Duration) {
	if v.Duration < low || v.Duration > high {
		c.bad(path, v, "must be from %v to %v", Duration{low}, Duration{high})
	}
}

// port adds an error unless v is a port of TCP and UDP.
func (c *checker) port(path string, v int32) { between(c, path, v, 1, 65535) }

// oneOf adds an error unless v is one of the choices.
func oneOf[T ~string](c *checker, path string, v T, choices ...T) {
	if slices.Contains(choices, v) {
		return
	}
	words := make([]string, len(choices))
	for i, choice := range choices {
		words[i] = string(choice)
	}
	last := len(words) - 1
	c.bad(path, string(v), "must be %s or %s", strings.Join(words[:last], ", "), words[last])
}

// typeMeta checks what an object says it is.
func (c *checker) typeMeta(t TypeMeta, kind string) {
	c.fixed("apiVersion", t.APIVersion, APIVersion)
	c.fixed("kind", t.Kind, kind)
}

// fixed adds an error unless v is the one value that is allowed.
func (c *checker) fixed(path, v, only string) {
	if v == "" {
		c.bad(path, nil, "is required: %s", only)
		return
	}
	c.want(v == only, path, v, "must be "+only)
}

// objectMeta checks the name and labels of an object.
func (c *checker) objectMeta(m ObjectMeta) {
	if m.Name == "" {
		c.bad("metadata.name", nil, ruleRequired)
	} else {
		c.want(isSubdomain(m.Name), "metadata.name", m.Name, ruleSubdomain)
	}
	if m.Namespace != "" {
		c.want(isDNSLabel(m.Namespace), "metadata.namespace", m.Namespace, ruleDNSLabel)
	}
	c.labels("metadata.labels", m.Labels)
	for _, key := range slices.Sorted(maps.Keys(m.Annotations)) {
		c.labelKey("metadata.annotations", key)
	}
}

// labels checks keys and values of labels.
func (c *checker) labels(path string, labels map[string]string) {
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		c.labelKey(path, key)
		value := labels[key]
		c.want(value == "" || isQualified(value), path+"["+key+"]", value, ruleLabelValue)
	}
}

// labelKey checks one key of labels or annotations.
func (c *checker) labelKey(path, key string) {
	if !isLabelKey(key) {
		c.bad(path+"["+key+"]", nil, "has a key that is not [prefix/]name, "+
			"with a name of at most 63 letters, digits, -, _ and .")
	}
}
