package propagate

import (
	"encoding/json"
	"reflect"
)

// Patch is the merge patch (RFC 7396) that makes one spec of the other: what differs, and null for what is
// to go. Lists change as a whole.
func Patch[T any](before, wanted *T) map[string]any {
	return diff(object(before), object(wanted))
}

// object is a spec as JSON has it; of nil it is empty.
func object(spec any) map[string]any {
	fields := map[string]any{}
	_ = json.Unmarshal(encode(spec), &fields) // it comes from an encoder; null leaves it empty
	if fields == nil {
		fields = map[string]any{}
	}
	return fields
}

func diff(before, wanted map[string]any) map[string]any {
	out := map[string]any{}
	for k := range before {
		if _, stays := wanted[k]; !stays {
			out[k] = nil
		}
	}
	for k, v := range wanted {
		old, had := before[k]
		a, isMap := old.(map[string]any)
		b, wantsMap := v.(map[string]any)
		switch {
		case isMap && wantsMap:
			if d := diff(a, b); len(d) > 0 {
				out[k] = d
			}
		case !had || !reflect.DeepEqual(old, v):
			out[k] = v
		}
	}
	return out
}
