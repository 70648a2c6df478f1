// Package fieldtest finds the fields that a comparison written by hand forgets. It is for
// tests only.
package fieldtest

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"
)

// Same changes one thing of a T after the other, in structs, lists, maps and behind pointers
// too, and demands that same notices each. Two that say the same in different places, such as
// copies of a list, must be the same. Except names what is not to count, with all that is in
// it, such as "List" or "Struct.Field"; "List: a copy" is what is compared by identity.
func Same[T any](t *testing.T, same func(a, b *T) bool, except ...string) {
	t.Helper()
	a, b := new(T), new(T)
	if !same(a, b) {
		t.Fatalf("two zero values of %T differ", *a)
	}
	within := func(name, e string) bool { return strings.HasPrefix(name, e+".") || strings.HasPrefix(name, e+"[") }
	used := map[string]bool{}
	Each(a, b, func(name string, differ bool) {
		want := !differ
		for _, e := range except {
			of, identity := strings.CutSuffix(e, ": a copy")
			switch {
			case identity && within(name, of):
				return
			case name == e:
				used[e], want = true, !identity
			case within(name, e), name == e+": a copy":
				used[e], want = true, true
			}
		}
		got := same(a, b)
		if got != want {
			t.Errorf("%T: %s: differs %v, same %v", *a, name, differ, got)
		}
		if back := same(b, a); back != got {
			t.Errorf("%T: %s: the order counts", *a, name)
		}
	})
	for _, e := range except {
		if !used[e] {
			t.Errorf("%T has no %s", *a, e)
		}
	}
}

// Each changes one thing of b after the other, and calls f each time; a and b are zero
// before and after. Where f is called with differ false they say the same, in copies.
func Each[T any](a, b *T, f func(name string, differ bool)) {
	each(reflect.ValueOf(a).Elem(), reflect.ValueOf(b).Elem(), "", f)
}

// values are what types have that are not looked into.
var values = []any{
	time.Unix(1, 0), netip.IPv6Unspecified(), netip.MustParsePrefix("::/0"), netip.MustParseAddrPort("[::]:1"),
}

func each(a, b reflect.Value, name string, f func(string, bool)) {
	if i := slices.IndexFunc(values, func(x any) bool { return reflect.TypeOf(x) == b.Type() }); i >= 0 {
		change(b, reflect.ValueOf(values[i]), name, f)
		return
	}
	switch b.Kind() {
	case reflect.Struct:
		for i := range b.NumField() {
			each(open(a.Field(i)), open(b.Field(i)), strings.TrimPrefix(name+"."+b.Type().Field(i).Name, "."), f)
		}
	case reflect.Array:
		for i := range b.Len() {
			each(a.Index(i), b.Index(i), fmt.Sprintf("%s[%d]", name, i), f)
		}
	case reflect.Slice:
		one := func() reflect.Value { return reflect.MakeSlice(b.Type(), 1, 1) }
		change(b, one(), name, f)
		inside(a, b, one(), one(), name, f, func() { each(a.Index(0), b.Index(0), name+"[]", f) })
	case reflect.Pointer:
		to := b.Type().Elem()
		change(b, reflect.New(to), name, f)
		inside(a, b, reflect.New(to), reflect.New(to), name, f, func() { each(a.Elem(), b.Elem(), name, f) })
	case reflect.Map:
		eachEntry(a, b, name, f)
	default:
		change(b, scalar(b.Type()), name, f)
	}
}

// eachEntry does so with the value and the key of a map of one entry.
func eachEntry(a, b reflect.Value, name string, f func(string, bool)) {
	key, value := reflect.New(b.Type().Key()).Elem(), reflect.New(b.Type().Elem()).Elem()
	one := func() reflect.Value {
		m := reflect.MakeMap(b.Type())
		m.SetMapIndex(key, reflect.Zero(value.Type()))
		return m
	}
	change(b, one(), name, f)
	inside(a, b, one(), one(), name, f, func() {
		x := reflect.New(value.Type()).Elem()
		each(x, value, name+"[]", func(name string, differ bool) {
			a.SetMapIndex(key, x)
			b.SetMapIndex(key, value)
			f(name, differ)
		})
		a.SetMapIndex(key, x)
		each(reflect.New(key.Type()).Elem(), key, name+"[key]", func(name string, differ bool) {
			if differ {
				b.Clear()
				b.SetMapIndex(key, value)
				f(name, differ)
			}
		})
	})
}

func change(b, to reflect.Value, name string, f func(string, bool)) {
	b.Set(to.Convert(b.Type()))
	f(name, true)
	b.SetZero()
}

// inside looks into two copies.
func inside(a, b, x, y reflect.Value, name string, f func(string, bool), look func()) {
	a.Set(x)
	b.Set(y)
	f(name+": a copy", false)
	look()
	a.SetZero()
	b.SetZero()
}

func scalar(t reflect.Type) reflect.Value {
	switch t.Kind() {
	case reflect.Bool:
		return reflect.ValueOf(true)
	case reflect.String:
		return reflect.ValueOf("x")
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return reflect.ValueOf(1)
	}
	panic("no value for " + t.String())
}

// open is a field that may be set, exported or not.
func open(v reflect.Value) reflect.Value {
	return reflect.NewAt(v.Type(), unsafe.Pointer(v.UnsafeAddr())).Elem()
}
