package placement

// UninstallingAnnotation marks a DaemonSet whose agents are about to be removed.
const UninstallingAnnotation = "namegate.io/uninstalling"

// Uninstalling tells whether the DaemonSet is marked as about to be removed: then
// nothing is to be written to the API server any more. The same is so once it is
// gone. Before it was seen it is false.
func (w *Watcher) Uninstalling() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.gone || w.set != nil && w.set.Annotations[UninstallingAnnotation] != ""
}
