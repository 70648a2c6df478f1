package v1alpha1

import (
	"errors"
	"strings"
	"time"
)

// Duration is a length of time that is written with its unit: "500ms", "30s",
// "1m30s". Units are those of time.ParseDuration.
//
// +kubebuilder:validation:MaxLength=64
// +kubebuilder:validation:Pattern=`^\+?(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+$`
type Duration struct {
	time.Duration
}

// String returns the written form without the zero units of time.Duration:
// "1h", not "1h0m0s".
func (d Duration) String() string {
	s := d.Duration.String()
	if short, ok := strings.CutSuffix(s, "m0s"); ok {
		s = short + "m"
	}
	if short, ok := strings.CutSuffix(s, "h0m"); ok {
		s = short + "h"
	}
	return s
}

// MarshalText returns the written form.
func (d Duration) MarshalText() ([]byte, error) {
	return []byte(d.String()), nil
}

// errDuration completes a sentence that begins with the value.
var errDuration = errors.New("must be a duration with a unit, such as 500ms or 30s")

// UnmarshalText reads the written form. It refuses a number without a unit, 0
// included.
func (d *Duration) UnmarshalText(text []byte) error {
	if string(text) == "0" { // time.ParseDuration takes it without a unit
		return errDuration
	}
	v, err := time.ParseDuration(string(text))
	if err != nil {
		return errDuration
	}
	d.Duration = v
	return nil
}
