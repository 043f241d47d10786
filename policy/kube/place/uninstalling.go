package place

// UninstallingAnnotation marks a DaemonSet whose agents are about to be removed.
const UninstallingAnnotation = "namegate.io/uninstalling"

// Uninstalling tells whether the DaemonSet is marked as about to be removed: then
// nothing is to be written to the API server any more. The same is so once it is
// gone. Before it was seen it is false.
func (p *Place) Uninstalling() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.gone || p.set != nil && p.set.Annotations[UninstallingAnnotation] != ""
}
