// Command generate writes packaging/crds of the repository at the path that it
// is given.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"lbd.dev/lbd/tests/crds"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: generate REPOSITORY")
		os.Exit(2)
	}
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

// write replaces the folder, so that a kind that is gone leaves no file.
func write(root string) error {
	files, err := crds.Generate(root)
	if err != nil {
		return err
	}
	dir := filepath.Join(root, "packaging", "crds")
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			return err
		}
	}
	return nil
}
