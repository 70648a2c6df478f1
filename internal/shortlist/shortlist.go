// Package shortlist makes a short text of many names.
package shortlist

import (
	"fmt"
	"strings"
)

// Join joins names by commas, and only counts those beyond the first few: "a, b and 3 more".
func Join(names []string, most int) string {
	if more := len(names) - most; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), more)
	}
	return strings.Join(names, ", ")
}
