package v1alpha1

import (
	"fmt"
	"strconv"
)

// FieldError is one rule that an object breaks.
type FieldError struct {
	// Path leads from the root of the object to the field: "spec.addresses[0]",
	// "nodeLabels[zone]".
	Path string
	// Value is what the field has; nil if it is absent or does not help.
	Value any
	// Rule completes the sentence that Value begins: "must be from 1 to 65535".
	Rule string
}

// Error returns "path: value rule", with strings quoted.
func (e FieldError) Error() string {
	switch v := e.Value.(type) {
	case nil:
		return e.Path + ": " + e.Rule
	case string:
		return e.Path + ": " + strconv.Quote(v) + " " + e.Rule
	default:
		return fmt.Sprintf("%s: %v %s", e.Path, v, e.Rule)
	}
}
