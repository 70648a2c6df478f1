package convert

import (
	"errors"

	"lbd.dev/lbd/api/v1alpha1"
)

// alias is what a name of a community becomes where it is used: a name, a value,
// or nothing.
type alias struct {
	use    string
	reason string // why use is not the name
}

func community(o *object, meta v1alpha1.ObjectMeta, f *fields) {
	c := &v1alpha1.Community{TypeMeta: typeMeta(v1alpha1.KindCommunity), Metadata: meta}
	for i, n := range f.items("communities") {
		at := entry("spec.communities", i)
		e := o.mapping(n, at)
		a := v1alpha1.CommunityAlias{Name: e.text("name"), Value: e.text("value")}
		e.done()
		if o.alias(at, a) {
			c.Spec.Communities = append(c.Spec.Communities, a)
		}
	}
	if len(c.Spec.Communities) > 0 {
		o.body = c
	} else {
		o.note("spec.communities", nil, "has no entry that lbd needs; the object is left out")
	}
}

// alias decides what becomes of one name, and tells whether the entry stays.
func (o *object) alias(path string, a v1alpha1.CommunityAlias) bool {
	if _, again := o.c.aliases[a.Name]; again {
		o.note(path+".name", a.Name, "is defined twice; this entry is left out")
		return false
	}
	value, err := v1alpha1.ParseCommunity(a.Value)
	if err != nil {
		o.note(path+".value", a.Value, "%v; the entry is left out, and so is its name where it is used", err)
		o.c.aliases[a.Name] = alias{"", "has a value that lbd refuses"}
		return false
	}
	if std, err := v1alpha1.ParseCommunity(a.Name); err == nil { // a name that lbd knows by itself
		if std != value {
			o.keep(path+".name", a.Name, "has another value in lbd; the entry is left out, and where it is used its value %s is written", a.Value)
			o.c.aliases[a.Name] = alias{a.Value, "has another value in lbd"}
		}
		return false
	} else if !errors.Is(err, v1alpha1.ErrCommunityName) {
		o.keep(path+".name", a.Name, "is not a name for lbd; the entry is left out, and where it is used its value %s is written", a.Value)
		o.c.aliases[a.Name] = alias{a.Value, "is not a name for lbd"}
		return false
	}
	o.c.aliases[a.Name] = alias{use: a.Name}
	return true
}

// communities replaces the names that lbd does not take.
func (o *object) communities(path string, list []string) []string {
	var out []string
	for i, text := range list {
		at := entry(path, i)
		a, known := o.c.aliases[text]
		if !known {
			a.use = text
			if _, err := v1alpha1.ParseCommunity(text); err != nil && !errors.Is(err, v1alpha1.ErrCommunityName) {
				a = alias{"", err.Error()}
			}
		}
		switch {
		case a.use == "":
			o.note(at, text, "%s; it is left out", a.reason)
			continue
		case a.use != text:
			o.keep(at, text, "%s; it is written as %s", a.reason, a.use)
		}
		out = append(out, a.use)
	}
	return out
}
