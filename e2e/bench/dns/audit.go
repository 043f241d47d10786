package main

import (
	"github.com/namegate/namegate/e2e/bench/figure"
)

// noAudit is an agent like the one that is measured, without an audit log.
const noAudit = "no-audit"

// auditTurns is how many turns a round of the others is here, each so much shorter:
// what is looked for is less than the machine's speed changes within a second.
const auditTurns = 4

// audit measures what the audit log takes of the throughput: kept answers, as many
// as go, from two agents that differ in the log alone.
func (b *bench) audit() error {
	targets, file, err := b.audited()
	if err != nil {
		return err
	}
	const name = "dns.audit"
	short := *b
	short.options.rounds, short.span = b.options.rounds*auditTurns, max(b.span/auditTurns, minSpan)
	samples, err := short.rotate(name, targets, 0, func() (string, error) { return file, nil })
	if err != nil {
		return err
	}
	with, without := samples[targets[0].name], samples[noAudit]
	for _, k := range []kind{cpuOf, qpsOf} {
		own, peer := k.read(with), k.read(without)
		f := figure.Figure{Name: name + k.name, Value: own.Median(), Unit: k.unit}
		if err := b.Report(f.Against(noAudit, peer.Median()), max(own.Others(), peer.Others())); err != nil {
			return err
		}
	}
	own, peer := qpsOf.read(with), qpsOf.read(without)
	if err := b.Report(auditCost(own.Median(), peer.Median()), max(own.Others(), peer.Others())); err != nil {
		return err
	}
	return b.profiled(name, targets[0], func() (string, error) { return file, nil })
}

// audited are the two agents, and the questions whose answers both have kept.
func (b *bench) audited() (targets []target, file string, err error) {
	for _, silent := range []bool{false, true} {
		g, err := b.gateIn(manner{limits: raised, silent: silent})
		if err != nil {
			return nil, "", err
		}
		targets = append(targets, g.target())
	}
	if file, err = b.keptQuestions(); err != nil {
		return nil, "", err
	}
	for _, t := range targets {
		if err := b.wake(t); err != nil {
			return nil, "", err
		}
		if err := b.prime(t, file); err != nil {
			return nil, "", err
		}
	}
	return targets, file, nil
}

// auditCost is how much fewer answers a second there are with a log than without, in
// percent of the latter.
func auditCost(with, without float64) figure.Figure {
	return figure.Figure{Name: "dns.audit.cost", Value: 100 * (1 - with/without), Unit: "%", Peer: noAudit}
}
