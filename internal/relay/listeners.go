package relay

import (
	"bufio"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/google/nftables/binaryutil"
)

// Where the kernel lists TCP sockets, first all that listen
// (Documentation/networking/proc_net_tcp.rst).
var socketLists = []string{"/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"}

// listening is the state of a socket that listens, as the kernel writes it.
const listening = "0A"

// listeners are the TCP servers that are bound to one address, without those of the
// loopback interface, sorted. A server for IPv4 may be in the list of IPv6.
func listeners() ([]netip.AddrPort, error) {
	var out []netip.AddrPort
	for _, path := range socketLists {
		f, err := os.Open(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // a kernel without IPv6
		}
		if err != nil {
			return nil, err
		}
		found, err := readListeners(f)
		_ = f.Close()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		out = append(out, found...)
	}
	slices.SortFunc(out, netip.AddrPort.Compare)
	return slices.Compact(out), nil
}

// readListeners reads a list up to the first socket that does not listen.
func readListeners(r io.Reader) (out []netip.AddrPort, err error) {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 4 || fields[0] == "sl" {
			continue // the header
		}
		if fields[3] != listening {
			break
		}
		at, err := parseSocket(fields[1])
		if err != nil {
			return nil, err
		}
		if a := at.Addr(); !a.IsUnspecified() && !a.IsLoopback() {
			out = append(out, at)
		}
	}
	return out, lines.Err()
}

// parseSocket reads ADDRESS:PORT, of which the address is one or four words in the byte
// order of the machine.
func parseSocket(text string) (netip.AddrPort, error) {
	words, port, _ := strings.Cut(text, ":")
	b, err := hex.DecodeString(words)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("socket %q: %w", text, err)
	}
	for i := 0; i+4 <= len(b); i += 4 {
		w := binaryutil.BigEndian.Uint32(b[i:])
		copy(b[i:], binaryutil.NativeEndian.PutUint32(w))
	}
	a, ok := netip.AddrFromSlice(b)
	n, err := strconv.ParseUint(port, 16, 16)
	if !ok || err != nil {
		return netip.AddrPort{}, fmt.Errorf("socket %q is not an address and a port", text)
	}
	return netip.AddrPortFrom(a.Unmap(), uint16(n)), nil
}
