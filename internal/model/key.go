package model

import (
	"cmp"
	"strings"
)

// Key names an object of a cluster. Namespace is empty for a kind that has none.
type Key struct{ Namespace, Name string }

// ParseKey reads what String returns.
func ParseKey(text string) Key {
	if namespace, name, ok := strings.Cut(text, "/"); ok {
		return Key{namespace, name}
	}
	return Key{Name: text}
}

// String returns "namespace/name", or the name alone without a namespace.
func (k Key) String() string {
	if k.Namespace == "" {
		return k.Name
	}
	return k.Namespace + "/" + k.Name
}

// Compare orders by namespace and name.
func (k Key) Compare(o Key) int {
	return cmp.Or(cmp.Compare(k.Namespace, o.Namespace), cmp.Compare(k.Name, o.Name))
}
