package hostfiles

import (
	"maps"
	"os"
	"slices"
	"strings"
)

// kubeletUnits are the services that run a kubelet: the kubelet itself, k3s, RKE2, MicroK8s
// and k0s.
var kubeletUnits = []string{"kubelet.service", "k3s.service", "k3s-agent.service", "rke2-server.service", "rke2-agent.service",
	"snap.microk8s.daemon-kubelite.service", "k0sworker.service", "k0scontroller.service"}

// kubeletEnvironments are read also if the unit that names them is not: a package has the
// unit below /usr.
var kubeletEnvironments = []string{"/var/lib/kubelet/kubeadm-flags.env", "/etc/default/kubelet", "/etc/sysconfig/kubelet"}

// proxyVariables are the variables by which Go's programs find proxies (net/http).
var proxyVariables = []string{"HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"}

// kubeletService returns the kubelet's flags, and adds the proxies of its environment.
func (r Root) kubeletService(k *Kubelet) (flags map[string]string, err error) {
	flags = map[string]string{}
	manager, err := r.systemd("system.conf")
	if err != nil {
		return nil, err
	}
	defaults := map[string]string{}
	for _, s := range manager {
		if s.section == "Manager" && s.key == "DefaultEnvironment" {
			assign(defaults, s.value)
		}
	}
	for _, unit := range kubeletUnits {
		settings, err := r.systemd("system/" + unit)
		if err != nil {
			return nil, err
		}
		files := []string{}
		if unit == kubeletUnits[0] {
			files = kubeletEnvironments
		}
		if len(settings) == 0 && len(files) == 0 {
			continue
		}
		environment := maps.Clone(defaults)
		command, err := r.service(settings, files, environment)
		if err != nil {
			return nil, err
		}
		// A unit below /usr that is not mounted names the variables: their words count too.
		words := splitWords(os.Expand(command, func(name string) string { return environment[name] }))
		for _, name := range slices.Sorted(maps.Keys(environment)) {
			words = append(words, splitWords(environment[name])...)
		}
		flagsOf(words, flags)
		for _, v := range proxyVariables {
			if environment[v] == "" {
				continue
			}
			if err := k.proxy(environment[v], v+" of "+unit); err != nil {
				return nil, err
			}
		}
	}
	return flags, nil
}

// service fills in the environment of a service and returns its command line.
func (r Root) service(settings []setting, files []string, environment map[string]string) (command string, err error) {
	for _, s := range settings {
		switch {
		case s.section != "Service":
		case s.key == "Environment" && s.value == "":
			clear(environment)
		case s.key == "Environment":
			assign(environment, s.value)
		case s.key == "EnvironmentFile" && s.value != "":
			files = append(slices.Clone(files), strings.TrimPrefix(s.value, "-"))
		case s.key == "ExecStart":
			command = s.value
		}
	}
	// Files count more than assignments (systemd.exec(5)).
	for _, file := range files {
		text, _, err := r.optional(file)
		if err != nil {
			return "", err
		}
		for _, line := range logicalLines(text) {
			if name, value, ok := strings.Cut(line, "="); ok {
				environment[strings.TrimSpace(name)] = strings.Join(splitWords(value), " ")
			}
		}
	}
	return command, nil
}

// assign reads words NAME=VALUE.
func assign(environment map[string]string, text string) {
	for _, word := range splitWords(text) {
		if name, value, ok := strings.Cut(word, "="); ok {
			environment[name] = value
		}
	}
}

// flagsOf reads --NAME=VALUE and --NAME VALUE.
func flagsOf(words []string, flags map[string]string) {
	for i, word := range words {
		name, ok := strings.CutPrefix(word, "--")
		if !ok {
			continue
		}
		name, value, ok := strings.Cut(name, "=")
		if !ok && i+1 < len(words) && !strings.HasPrefix(words[i+1], "-") {
			value = words[i+1]
		}
		if value != "" {
			flags[name] = value
		}
	}
}
