package audit

import "time"

// layout is the time format of a line: UTC with a fixed number of digits, so that lines
// sort.
const layout = "2006-01-02T15:04:05.000000Z"

// beyond is the first second, after 1970 in UTC, that has five digits of a year.
const beyond = 253_402_300_800

// appendTime appends the moment in layout. What is not of the years 1970 to 9999
// is left to the standard library, which takes four times as long.
func appendTime(b []byte, t time.Time) []byte {
	unix := t.Unix()
	if unix < 0 || unix >= beyond {
		return t.UTC().AppendFormat(b, layout)
	}
	year, month, day := dateOf(uint32(unix / 86400))
	second, micros := uint32(unix%86400), uint32(t.Nanosecond()/1000)
	at := len(b)
	b = append(b, layout...)
	d := b[at : at+len(layout)]
	two(d[0:2], year/100)
	two(d[2:4], year%100)
	two(d[5:7], month)
	two(d[8:10], day)
	two(d[11:13], second/3600)
	two(d[14:16], second/60%60)
	two(d[17:19], second%60)
	two(d[20:22], micros/10000)
	two(d[22:24], micros/100%100)
	two(d[24:26], micros%100)
	return b
}

// two writes a number below 100 with two digits.
func two(d []byte, n uint32) { d[0], d[1] = '0'+byte(n/10), '0'+byte(n%10) }

// dateOf returns the date of a day, counted from 1970-01-01, in the calendar of
// Gregory. It reckons in years that begin in March, so that the leap day is their
// last; 400 of them always have as many days.
func dateOf(days uint32) (year, month, day uint32) {
	const toMarch0, in400 = 719_468, 146_097 // days since 0000-03-01; of 400 years
	days += toMarch0
	cycle, in := days/in400, days%in400
	years := (in - in/1460 + in/36_524 - in/146_096) / 365
	left := in - (365*years + years/4 - years/100)
	march := (5*left + 2) / 153 // 0 is March: five months have 153 days
	day = left - (153*march+2)/5 + 1
	year = cycle*400 + years
	if march >= 10 {
		return year + 1, march - 9, day
	}
	return year, march + 3, day
}
