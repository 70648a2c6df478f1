package k8s

import "time"

// SetPatience replaces AbsentAfter, before Run.
func (w *Watch[T]) SetPatience(d time.Duration) { w.patience = d }
