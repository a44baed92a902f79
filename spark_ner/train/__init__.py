"""From labelled text to a tagger: reading, alignment, the loop, strict scores, the embedded model."""
