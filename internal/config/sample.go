package config

import _ "embed"

//go:embed testdata/reference.yaml
var reference string

//go:embed testdata/minimal.yaml
var minimal string

// Reference returns a configuration with every field and what it means.
func Reference() string { return reference }

// Minimal returns the shortest configuration of a control plane with three
// nodes.
func Minimal() string { return minimal }
