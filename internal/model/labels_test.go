package model

import (
	"maps"
	"testing"
)

// Labels of every source count, in a stated order, whichever came first.
func TestLabelsOfEverySource(t *testing.T) {
	told := map[SourceName]map[string]string{
		SourceConfig:   {"a": "files", "b": "files", "c": "files", "own": "files"},
		SourceMachines: {"b": "machines", "c": "machines", "only": "machines"},
		SourceKube:     {"c": "cluster"},
	}
	want := map[string]string{"a": "files", "b": "machines", "c": "cluster", "own": "files", "only": "machines"}
	for _, order := range [][]SourceName{{SourceConfig, SourceMachines, SourceKube}, {SourceKube, SourceMachines, SourceConfig}, {SourceMachines, SourceKube, SourceConfig}} {
		var v View
		for _, s := range order {
			v.SetLabels(s, told[s])
		}
		if !maps.Equal(v.Labels, want) {
			t.Errorf("told by %v: %v, want %v", order, v.Labels, want)
		}
	}
}
