package sockdiag

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

const (
	// Sizes of struct unix_diag_req and struct unix_diag_msg, the bit that asks for
	// the file of a socket and the attribute with it (include/uapi/linux/unix_diag.h).
	unixReqLen, unixMsgLen = 24, 16
	unixShowVFS            = 2
	unixVFS                = 1
)

// File is what tells one file of a host from all others: its inode, as far as 32 bits go, and the
// device of its file system.
type File struct{ Inode, Major, Minor uint32 }

// unixRequest is struct unix_diag_req: all sockets that listen, with their files.
type unixRequest struct{}

// Len is the size of the request in bytes.
func (unixRequest) Len() int { return unixReqLen }

// Serialize returns the request as the kernel wants it.
func (unixRequest) Serialize() []byte {
	b := make([]byte, unixReqLen)
	b[0] = unix.AF_UNIX
	nl.NativeEndian().PutUint32(b[4:], uint32(Listening))
	nl.NativeEndian().PutUint32(b[12:], unixShowVFS)
	return b
}

// ListensOn tells whether a process of this network namespace listens on the unix socket that is
// this file. The names in /proc/net/unix do not say so: they are as their programs wrote them, and
// one in the abstract namespace may have lines of its own.
func ListensOn(file File) (bool, error) {
	found := false
	req := nl.NewNetlinkRequest(nl.SOCK_DIAG_BY_FAMILY, unix.NLM_F_DUMP)
	req.AddData(unixRequest{})
	err := req.ExecuteIter(unix.NETLINK_INET_DIAG, nl.SOCK_DIAG_BY_FAMILY, func(m []byte) bool {
		at, ok := parseUnix(m)
		found = found || ok && at == file
		return true
	})
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return false, fmt.Errorf("list the unix sockets: %w", err)
	}
	return found, nil
}

// parseUnix is the file of a socket in struct unix_diag_msg and its attributes; those in the
// abstract namespace have none.
func parseUnix(m []byte) (file File, ok bool) {
	if len(m) < unixMsgLen {
		return File{}, false
	}
	attrs, err := nl.ParseRouteAttr(m[unixMsgLen:])
	if err != nil {
		return File{}, false
	}
	for _, a := range attrs {
		if a.Attr.Type == unixVFS && len(a.Value) >= 8 {
			const minorBits = 20 // of the kernel's own form of a device
			device := nl.NativeEndian().Uint32(a.Value[4:])
			return File{nl.NativeEndian().Uint32(a.Value), device >> minorBits, device & (1<<minorBits - 1)}, true
		}
	}
	return File{}, false
}
