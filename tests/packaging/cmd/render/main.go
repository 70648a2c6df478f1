// Command render prints the objects of a kustomization or of a chart, for a dry run
// against an API server:
//
//	render kustomize DIR
//	render helm DIR [VALUES]
package main

import (
	"errors"
	"fmt"
	"os"

	"sigs.k8s.io/yaml"

	packaging "lbd.dev/lbd/tests/packaging"
)

func main() {
	if err := render(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "render:", err)
		os.Exit(1)
	}
}

func render(args []string) error {
	var objects []packaging.Object
	var err error
	switch {
	case len(args) == 2 && args[0] == "kustomize":
		objects, err = packaging.Kustomize(args[1])
	case len(args) >= 2 && len(args) <= 3 && args[0] == "helm":
		var values map[string]any
		if len(args) == 3 {
			data, err := os.ReadFile(args[2])
			if err != nil {
				return err
			}
			if err := yaml.UnmarshalStrict(data, &values); err != nil {
				return fmt.Errorf("%s: %w", args[2], err)
			}
		}
		objects, err = packaging.Chart(args[1], values)
	default:
		return errors.New("wants kustomize DIR, or helm DIR [VALUES]")
	}
	if err != nil {
		return err
	}
	return packaging.Write(os.Stdout, objects)
}
