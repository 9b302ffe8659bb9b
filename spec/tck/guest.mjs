export function checkGuest() { return [] }
