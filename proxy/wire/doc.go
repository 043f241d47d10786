// Package wire reads and writes DNS messages in place, without a parser of all records
// and without an allocation for each: a client's plain query (QueryView), the query that
// an upstream gets (Query), an upstream's plain answer with addresses (AnswerView), and
// replies without records (ErrorReply). The proxy uses it for nearly every packet, and
// the dns library for all messages that are not plain. It knows no policy beyond names,
// and decides nothing.
package wire
