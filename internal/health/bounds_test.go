package health

import (
	"bytes"
	"net"
	"path/filepath"
	"testing"

	"lbd.dev/lbd/api/v1alpha1"
)

// TestLargestFile: a certificate file may be as large as the bound and no larger, and is never cut.
func TestLargestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ca.crt")
	for size, whole := range map[int]bool{0: true, maxFile - 1: true, maxFile: true, maxFile + 1: false, 2 * maxFile: false} {
		want := bytes.Repeat([]byte{'x'}, size)
		write(t, path, want)
		got, err := readBounded(path)
		if whole && (err != nil || !bytes.Equal(got, want)) {
			t.Errorf("%d bytes: read %d, %v", size, len(got), err)
		}
		if !whole && (err == nil || got != nil) {
			t.Errorf("%d bytes: read %d, %v", size, len(got), err)
		}
	}
}

// TestNameThatIsNotKnown: a name that does not exist is a fault of the check, one that nobody could
// say is one of the resolver.
func TestNameThatIsNotKnown(t *testing.T) {
	for _, c := range []struct {
		err  net.DNSError
		want string
	}{
		{net.DNSError{Name: "api.example", IsNotFound: true}, `host "api.example" is not known`},
		{net.DNSError{Name: "api.example", IsTemporary: true}, `host "api.example" could not be looked up`},
	} {
		if got, ok := ownCause(t.Context(), &c.err, "connecting"); !ok || got != c.want {
			t.Errorf("%q, %v, want %q", got, ok, c.want)
		}
	}
}

// TestCheckWithoutAType fails and says why.
func TestCheckWithoutAType(t *testing.T) {
	if got := probeTwice(t, newProber(v1alpha1.HealthCheck{}, nil), long); got != "the health check has none of https, http, tcp and exec" {
		t.Error(got)
	}
}
