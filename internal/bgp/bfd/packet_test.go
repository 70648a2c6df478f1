package bfd

import (
	"bytes"
	"encoding/hex"
	"errors"
	"testing"
	"time"
)

const ms = time.Millisecond

// plain is a packet by hand, RFC 5880 section 4.1: version 1, diagnostic 3, Up,
// Poll, multiplier 3, my 0x01020304, your 0x05060708, 100 ms, 50 ms, no echo.
var plain = unhex("23e0031801020304050607080001 86a00000c35000000000")

func unhex(s string) []byte {
	b, err := hex.DecodeString(string(bytes.ReplaceAll([]byte(s), []byte(" "), nil)))
	if err != nil {
		panic(err)
	}
	return b
}

func TestParse(t *testing.T) {
	want := Packet{
		Diag: DiagNeighborDown, State: Up, Poll: true, DetectMult: 3, MyDiscr: 0x01020304, YourDiscr: 0x05060708,
		DesiredMinTx: 100 * ms, RequiredMinRx: 50 * ms,
	}
	got, err := Parse(plain)
	if err != nil || got != want {
		t.Fatalf("got %+v, %v\nwant %+v", got, err, want)
	}
	if b := want.Append(nil, nil); !bytes.Equal(b, plain) {
		t.Errorf("sent as %x\nwant    %x", b, plain)
	}
	// Section 6.8.6: the payload may be longer than the length field.
	if got, err := Parse(append(bytes.Clone(plain), 1, 2, 3)); err != nil || got != want {
		t.Errorf("with a tail: %+v, %v", got, err)
	}
}

// TestParseRefuses has a row for each rule of RFC 5880 section 6.8.6 that needs
// no session, and for what is refused by choice.
func TestParseRefuses(t *testing.T) {
	signed := (&Packet{State: Up, DetectMult: 1, MyDiscr: 1, YourDiscr: 2, Auth: AuthSection{Type: KeyedSHA1}}).Append(nil, []byte("k"))
	rows := []struct {
		rule string
		from []byte
		edit func(b []byte) []byte
		want error
	}{
		{"shorter than the header", plain, func(b []byte) []byte { return b[:23] }, ErrShort},
		{"nothing", plain, func(b []byte) []byte { return nil }, ErrShort},
		{"version 0", plain, func(b []byte) []byte { b[0] &= 0x1f; return b }, ErrVersion},
		{"version 2", plain, func(b []byte) []byte { b[0] = 2<<5 | b[0]&0x1f; return b }, ErrVersion},
		{"length below 24 without A", plain, func(b []byte) []byte { b[3] = 23; return b }, ErrLength},
		{"length below 26 with A", signed, func(b []byte) []byte { b[3] = 25; return b }, ErrLength},
		{"length beyond the payload", plain, func(b []byte) []byte { b[3] = 25; return b }, ErrShort},
		{"A without a section", plain, func(b []byte) []byte { b[1] |= flagAuth; return b }, ErrLength},
		{"detect multiplier 0", plain, func(b []byte) []byte { b[2] = 0; return b }, ErrDetectMult},
		{"multipoint", plain, func(b []byte) []byte { b[1] |= 1; return b }, ErrMultipoint},
		{"my discriminator 0", plain, func(b []byte) []byte { clear(b[4:8]); return b }, ErrMyDiscr},
		{"your discriminator 0 in Up", plain, func(b []byte) []byte { clear(b[8:12]); return b }, ErrYourDiscr},
		{"your discriminator 0 in Init", plain, func(b []byte) []byte { clear(b[8:12]); b[1] = byte(Init) << 6; return b }, ErrYourDiscr},
		{"your discriminator 0 in Down", plain, func(b []byte) []byte { clear(b[8:12]); b[1] = byte(Down) << 6; return b }, nil},
		{"your discriminator 0 in AdminDown", plain, func(b []byte) []byte { clear(b[8:12]); b[1] = 0; return b }, nil},
		{"simple password", signed, func(b []byte) []byte { b[24] = 1; return b }, ErrSimple},
		{"keyed MD5", signed, func(b []byte) []byte { b[24] = 2; return b }, ErrMD5},
		{"meticulous keyed MD5", signed, func(b []byte) []byte { b[24] = 3; return b }, ErrMD5},
		{"authentication type 0", signed, func(b []byte) []byte { b[24] = 0; return b }, ErrAuthType},
		{"authentication type 6", signed, func(b []byte) []byte { b[24] = 6; return b }, ErrAuthType},
		{"authentication length", signed, func(b []byte) []byte { b[25] = 27; return b }, ErrLength},
		{"length beside the section", signed, func(b []byte) []byte { b[3] = 53; return append(b, 0) }, ErrLength},
		{"reserved byte, ignored by section 4.4", signed, func(b []byte) []byte { b[27] = 9; return b }, nil},
	}
	for _, r := range rows {
		if _, err := Parse(r.edit(bytes.Clone(r.from))); !errors.Is(err, r.want) || (err == nil) != (r.want == nil) {
			t.Errorf("%s: %v, want %v", r.rule, err, r.want)
		}
	}
}

// TestHash compares with a hash made by `openssl dgst -sha1`.
func TestHash(t *testing.T) {
	key := []byte("secret")
	p := Packet{
		State: Down, DetectMult: 3, MyDiscr: 1, DesiredMinTx: time.Second, RequiredMinRx: 100 * ms,
		Auth: AuthSection{Type: MeticulousKeyedSHA1, KeyID: 7, Sequence: 0x0a0b0c0d},
	}
	b := p.Append([]byte("before"), key)[len("before"):]
	want := unhex("20 44 03 34 00000001 00000000 000f4240 000186a0 00000000 05 1c 07 00 0a0b0c0d" + opensslHash)
	if !bytes.Equal(b, want) {
		t.Fatalf("sent as %x\nwant    %x", b, want)
	}
	got, err := Parse(b)
	if err != nil || got != p {
		t.Fatalf("got %+v, %v\nwant %+v", got, err, p)
	}
	if !authentic(b, key) {
		t.Error("own hash refused")
	}
	for i := range b {
		c := bytes.Clone(b)
		c[i] ^= 1
		if authentic(c, key) {
			t.Errorf("byte %d changed, and still authentic", i)
		}
	}
	if authentic(b, []byte("secres")) || authentic(b[:51], key) {
		t.Error("another key or a short packet is authentic")
	}
}

func TestIntervalsOnTheWire(t *testing.T) {
	for d, want := range map[time.Duration]uint32{
		-1: 0, 0: 0, 1: 1, time.Microsecond: 1, 1001: 2, time.Second: 1e6, MaxInterval: 1<<32 - 1, MaxInterval + 1: 1<<32 - 1,
	} {
		if got := micros(d); got != want {
			t.Errorf("%v: %d µs, want %d", d, got, want)
		}
	}
}

// FuzzParse: what is accepted keeps the rules, and is the same after another
// turn through the wire.
func FuzzParse(f *testing.F) {
	f.Add(plain)
	f.Add((&Packet{State: Init, DetectMult: 9, MyDiscr: 1, YourDiscr: 2, Auth: AuthSection{Type: KeyedSHA1, KeyID: 3, Sequence: 4}}).Append(nil, []byte("k")))
	f.Add((&Packet{State: AdminDown, Final: true, Demand: true, ControlPlaneIndependent: true, DetectMult: 255, MyDiscr: 1}).Append(nil, nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := Parse(b)
		if err != nil {
			if p != (Packet{}) {
				t.Fatalf("refused, and still %+v", p)
			}
			return
		}
		if p.DetectMult == 0 || p.MyDiscr == 0 || p.YourDiscr == 0 && p.State > Down {
			t.Fatalf("accepted %+v", p)
		}
		key := []byte("key")
		c := p.Append(nil, key)
		again, err := Parse(c)
		if err != nil || again != p {
			t.Fatalf("%+v became %+v, %v", p, again, err)
		}
		b[3] = c[3] // a length beyond the header without authentication is legal
		if p.Auth.Type == 0 && !bytes.Equal(c, b[:headerLen]) {
			t.Fatalf("%x became %x", b, c)
		}
		if p.Auth.Type != 0 && !authentic(c, key) {
			t.Fatalf("%x is not authentic", c)
		}
	})
}

const opensslHash = "7ddc620bf9ee168b0e018d54009f3241f4fefb4d"
