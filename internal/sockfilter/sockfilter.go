// Package sockfilter gives sockets classic BPF programs, which decide in the kernel what a
// socket hears.
package sockfilter

import (
	"encoding/binary"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// Attach gives a socket a program. option is SO_ATTACH_FILTER, or SO_ATTACH_REUSEPORT_CBPF
// for one that chooses among sockets.
func Attach(fd, option int, program ...bpf.Instruction) error {
	raw, err := bpf.Assemble(program)
	if err != nil {
		return err
	}
	filter := make([]unix.SockFilter, len(raw))
	for i, r := range raw {
		filter[i] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
	return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, option, &unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]})
}

// Native16 is how a program, which reads numbers in network order, sees one that the
// kernel wrote in its own order.
func Native16(v uint16) uint32 {
	return uint32(binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, v)))
}
