//go:build manpages

package main

import (
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra/doc"
)

// A program with this tag writes man pages of all commands into a folder, as
// `lbd manpages DIRECTORY`, and is for packaging/release alone: no release contains it.
func init() {
	if len(os.Args) != 3 || os.Args[1] != "manpages" {
		return
	}
	time.Local = time.UTC // in which cobra writes the date of SOURCE_DATE_EPOCH
	root := newRoot()
	root.DisableAutoGenTag = true
	if err := doc.GenManTree(root, &doc.GenManHeader{Section: "1", Source: "lbd " + programVersion(), Manual: "lbd"}, os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}
