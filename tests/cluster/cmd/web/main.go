// Web answers every request by HTTP on port 80 with the name of its Pod.
package main

import (
	"fmt"
	"net/http"
	"os"
)

func main() {
	name, err := os.Hostname()
	if err == nil {
		err = http.ListenAndServe(":80", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, name) }))
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
