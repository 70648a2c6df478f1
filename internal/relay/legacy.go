package relay

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// What the options of the kernel for iptables-legacy look like (linux/netfilter_ipv4/ip_tables.h,
// and the same of IPv6).
const (
	xtGetInfo, xtGetEntries = 64, 65
	xtNameLen               = 32
	xtInfoLen, xtInfoSize   = 84, 80 // the size of all entries is its last word
	xtEntriesSize, xtHeader = 32, 40 // entries come after their size and what aligns them
	xtMost                  = 1 << 20
)

// legacyChain tells whether iptables-legacy has a chain in a small table. A table is asked about
// only if somebody has it: to ask for another would make it. Only root may read which there are.
func legacyChain(f family, table, chain string) (bool, error) {
	names, err := os.ReadFile([families]string{"/proc/thread-self/net/ip_tables_names", "/proc/thread-self/net/ip6_tables_names"}[f])
	if errors.Is(err, fs.ErrPermission) {
		return false, err
	}
	if err != nil || !slices.Contains(strings.Fields(string(names)), table) {
		return false, nil
	}
	domain, level := [families]int{unix.AF_INET, unix.AF_INET6}[f], [families]int{unix.SOL_IP, unix.SOL_IPV6}[f]
	fd, err := unix.Socket(domain, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return false, err
	}
	defer func() { _ = unix.Close(fd) }()
	info := make([]byte, xtInfoLen)
	copy(info[:xtNameLen-1], table)
	if err := option(fd, level, xtGetInfo, info); err != nil {
		return false, err
	}
	size := binary.NativeEndian.Uint32(info[xtInfoSize:])
	if size > xtMost {
		return false, fmt.Errorf("table %s of iptables-legacy has %d bytes, and %d are read at most", table, size, xtMost)
	}
	entries := make([]byte, xtHeader+int(size))
	copy(entries[:xtNameLen-1], table)
	binary.NativeEndian.PutUint32(entries[xtEntriesSize:], size)
	if err := option(fd, level, xtGetEntries, entries); err != nil {
		return false, err
	}
	// A chain begins with an entry that has its name, filled up with zeros.
	return bytes.Contains(entries[xtHeader:], append([]byte(chain), 0)), nil
}

// option reads an option of a socket into a buffer that says what is asked for.
func option(fd, level, name int, buf []byte) error {
	n := uint32(len(buf))
	_, _, no := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), uintptr(level), uintptr(name),
		uintptr(unsafe.Pointer(&buf[0])), uintptr(unsafe.Pointer(&n)), 0)
	if no != 0 {
		return no // EAGAIN: it has changed meanwhile; the next look will tell
	}
	return nil
}
